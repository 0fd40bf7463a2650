/**
 * Keeps V8's young generation at its first size, for a process that bytes go through; imported for that alone, and first, since loading a
 * program makes it grow. Buffers lie outside of the heap and are let go only when the small objects that stand for them are collected. In a
 * young generation of 16 MiB that comes so late that V8 collects the whole heap for their sake, once for each dozen MiB that pass.
 */
import { setFlagsFromString } from "node:v8";

setFlagsFromString("--semi-space-growth-factor=1");
