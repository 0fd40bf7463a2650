import { setFlagsFromString } from "node:v8";

/**
 * Keeps V8's young generation at its first size, for a process that bytes go through; called before the rest is loaded, which makes it grow.
 * Buffers lie outside of the heap and are let go only when the small objects that stand for them are collected. In a young generation of
 * 16 MiB that comes so late that V8 collects the whole heap for their sake, once for each dozen MiB that pass.
 */
export function keepYoungGenerationSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}
