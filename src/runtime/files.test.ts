import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { download, services, upload } from "../boundary/index.ts";
import { decodeFrames, encodeFrame } from "../common/frames.ts";
import { boundary } from "../wire/index.ts";
import { isRoot, RuntimeProcess, type TestSupervisor } from "./_harness.ts";

type Request = NonNullable<MessageInitShape<typeof boundary.FilesRequestSchema>["payload"]>;

describe.skipIf(!isRoot)("files over the boundary", () => {
  let runtime: RuntimeProcess;
  let supervisor: TestSupervisor;
  let local: string;

  beforeAll(async () => {
    runtime = await RuntimeProcess.start({ uid: 10_001 });
    supervisor = await runtime.supervisor();
    await supervisor.connect();
    local = mkdtempSync(join(tmpdir(), "openshell-files-"));
  });
  afterAll(async () => {
    await supervisor?.[Symbol.asyncDispose]();
    await runtime?.[Symbol.asyncDispose]();
    if (local !== undefined) rmSync(local, { recursive: true, force: true });
  });

  it("go there and come back with the same checksums, modes and links", async () => {
    const source = join(local, "project");
    mkdirSync(join(source, "sub"), { recursive: true });
    const content = randomBytes(5_000_003);
    writeFileSync(join(source, "sub/blob"), content);
    writeFileSync(join(source, "run"), "#!/bin/sh\necho ran\n");
    chmodSync(join(source, "run"), 0o755);
    symlinkSync("sub/blob", join(source, "link"));

    const sent = await upload(await supervisor.channel(services.files), { source, destination: "work" });
    expect(sent).toMatchObject({ files: 3, path: join(runtime.home, "work/project"), skipped: [] });
    expect(await supervisor.exec(["sh", "-c", "cd work/project && ./run && sha256sum < link"])).toMatchObject({
      stdout: `ran\n${createHash("sha256").update(content).digest("hex")}  -\n`,
      code: 0,
    });

    const back = join(local, "back");
    let progress = 0;
    const received = await download(await supervisor.channel(services.files), {
      source: "work/project",
      destination: back,
      name: "copy",
      progress: (bytes) => {
        progress = bytes;
      },
    });
    expect(received).toMatchObject({ files: 3, path: join(back, "copy") });
    expect(readFileSync(join(back, "copy/link")).equals(content)).toBe(true);
    expect(statSync(join(back, "copy/run")).mode & 0o777).toBe(0o755);
    expect(progress).toBeGreaterThan(content.length);
  });

  it("whose names are not UTF-8 are left out with a word, either way", async () => {
    const source = join(local, "names");
    mkdirSync(source);
    writeFileSync(join(source, "good"), "kept");
    writeFileSync(Buffer.concat([Buffer.from(`${source}/b`), Buffer.from([0xff])]), "lost");
    const sent = await upload(await supervisor.channel(services.files), { source, destination: "." });
    expect(sent).toMatchObject({ files: 1, skipped: ["names/b\ufffd: its name is not UTF-8"] });

    expect((await supervisor.exec(["sh", "-c", "touch names/b$(printf '\\377')"])).code).toBe(0);
    const received = await download(await supervisor.channel(services.files), {
      source: "names",
      destination: join(local, "names-back"),
    });
    expect(received).toMatchObject({ files: 1, skipped: ["names/b\ufffd: its name is not UTF-8"] });
  });

  it.each([
    ["by their number", 1_500, 1, 999],
    ["by the length of their names", 1_000, 6, 229],
  ])("that are left out are told as far as a message holds, %s", async (_by, count, depth, told) => {
    const directory = ["left-out", `of-${count}`, ...Array.from({ length: depth }, () => "d".repeat(180))].join("/");
    const script = 'mkdir -p "$1" && cd "$1" && seq -f fifo-%04g $2 | xargs mkfifo && echo x > kept';
    expect((await supervisor.exec(["sh", "-c", script, "sh", directory, String(count)])).code).toBe(0);
    const channel = await supervisor.channel(services.files);
    const destination = join(local, `left-out-${count}`);
    const { files, skipped } = await download(channel, { source: `left-out/of-${count}`, destination });
    expect(files).toBe(1);
    expect(skipped).toHaveLength(told + 1);
    expect(skipped.at(-1)).toBe(`and ${count - told} more`);
  });

  it("that do not exist are named, on either side", async () => {
    const channel = await supervisor.channel(services.files);
    await expect(download(channel, { source: "nowhere", destination: local })).rejects.toMatchObject({
      code: "not-found",
      message: `${join(runtime.home, "nowhere")} does not exist`,
    });
    const second = await supervisor.channel(services.files);
    await expect(upload(second, { source: join(local, "nowhere"), destination: "." })).rejects.toMatchObject({
      code: "not-found",
    });
  });

  it("that break off on the way in leave nothing and change nothing", async () => {
    const source = join(local, "tree");
    mkdirSync(join(source, "kept"), { recursive: true });
    writeFileSync(join(source, "kept/a"), "old");
    await upload(await supervisor.channel(services.files), { source, destination: "interrupted" });
    writeFileSync(join(source, "kept/a"), "new");
    writeFileSync(join(source, "kept/z"), randomBytes(4_000_000));
    const list = async () =>
      (await supervisor.exec(["sh", "-c", "cd interrupted && find . -type f && cat tree/kept/a"])).stdout;
    const before = await list();
    expect(before).toBe("./tree/kept/a\nold");

    for (const destination of ["interrupted", "made/for/it"]) {
      const channel = await supervisor.channel(services.files);
      const progress = (bytes: number) => {
        if (bytes > 1_000_000) channel.abort(new Error("the user pressed Ctrl-C"));
      };
      await expect(upload(channel, { source, destination, progress })).rejects.toThrow();
    }
    // The runtime may learn of the end a moment later than this side.
    await expect.poll(list, { timeout: 5_000 }).toBe(before);
    await expect
      .poll(async () => (await supervisor.exec(["ls", "-A"])).stdout, { timeout: 5_000 })
      .not.toContain("made");
    expect((await supervisor.exec(["sh", "-c", "find . -name '.openshell-*'"])).stdout).toBe("");
  });

  it("that are on their way in when the sandbox is stopped leave nothing", async () => {
    await using ending = await RuntimeProcess.start();
    await using other = await ending.supervisor();
    await other.connect();
    const channel = await other.channel(services.files);
    const send = (payload: Request) => channel.write(encodeFrame(boundary.FilesRequestSchema, { payload }));
    await send({ case: "upload", value: { destination: "." } });
    const archive = pack();
    // So many that to take them away needs its time.
    for (let index = 0; index < 3_000; index += 1) archive.entry({ name: `many/${index}` }, "x");
    archive.entry({ name: "many/unfinished", size: 1_000_000 }).write(Buffer.alloc(100_000));
    let sent = 0;
    for await (const chunk of archive as AsyncIterable<Uint8Array>) {
      await send({ case: "data", value: chunk });
      sent += chunk.length;
      if (sent >= 3_000 * 1_024 + 100_000) break;
    }
    const made = () => readdirSync(ending.home, { encoding: "utf8", recursive: true }).join("\n");
    await expect.poll(made).toMatch(/\/many\/unfinished$/m);
    other.send({ case: "terminate", value: { reason: "test" } });
    expect(await ending.exited).toBe(128 + 15);
    expect(readdirSync(ending.home)).toEqual([]);
  });

  it("that nobody takes hold no end up", async () => {
    await using ending = await RuntimeProcess.start();
    await using other = await ending.supervisor();
    await other.connect();
    writeFileSync(join(ending.home, "big"), Buffer.alloc(100_000_000));
    const channel = await other.channel(services.files);
    const payload = { case: "download", value: { source: "big" } } as const;
    await channel.write(encodeFrame(boundary.FilesRequestSchema, { payload }));
    // Until nothing more of it fits between the disk and here.
    const pid = readFileSync(`/proc/${ending.pid}/task/${ending.pid}/children`, "utf8").trim();
    const read = () => Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
    const before = read();
    let last = before;
    const isStill = () => {
      const [now, former] = [read(), last];
      last = now;
      return now - before > 1_000_000 && now - former < 10_000;
    };
    await expect.poll(isStill, { interval: 300 }).toBe(true);
    const askedAt = performance.now();
    other.send({ case: "terminate", value: { reason: "test" } });
    expect(await ending.exited).toBe(128 + 15);
    // Far less than the grace period.
    expect(performance.now() - askedAt).toBeLessThan(15_000);
  });

  it("that were on their way in when the sandbox was killed are gone at its next start, and nothing else", async () => {
    const others = [".openshell-0123456789ab.d", ".openshell-0123456789AB", "work"];
    const furnish = (home: string) => {
      for (const name of [".openshell-0123456789ab", ...others]) {
        mkdirSync(join(home, name));
        writeFileSync(join(home, name, "file"), "x");
      }
      writeFileSync(join(home, ".openshell-00000000000f"), "x");
    };
    await using next = await RuntimeProcess.start({ furnish });
    await expect.poll(() => readdirSync(next.home).sort()).toEqual([".openshell-00000000000f", ...others].sort());
  });

  it("are refused before the first byte when they cannot fit", async () => {
    const channel = await supervisor.channel(services.files);
    const request = { case: "upload", value: { destination: "deep/er", sizeHint: 2n ** 60n } } as const;
    await channel.write(encodeFrame(boundary.FilesRequestSchema, { payload: request }));
    const replies = decodeFrames(boundary.FilesReplySchema, channel.readable);
    const { value } = await replies.next();
    expect(value?.payload).toMatchObject({
      case: "failure",
      value: { message: expect.stringMatching(/cannot fit: \d+\.\d MiB are free at .*\/deep\/er$/) },
    });
    channel.end();
    expect((await supervisor.exec(["ls"])).stdout).not.toContain("deep");
  });

  it("that are no files are refused by their name", async () => {
    const channel = await supervisor.channel(services.files);
    await expect(download(channel, { source: "/dev/zero", destination: local, name: "zero" })).rejects.toMatchObject({
      code: "invalid-argument",
      message: "/dev/zero is not a file or a directory, and nothing else is copied",
    });
  });

  it("that the agent may not read are refused as such", async () => {
    writeFileSync(join(local, "secret"), "x", { mode: 0o600 });
    chmodSync(local, 0o755);
    const channel = await supervisor.channel(services.files);
    const source = join(local, "secret");
    await expect(download(channel, { source, destination: join(local, "got") })).rejects.toMatchObject({
      code: "permission-denied",
      message: `${source} may not be read or written`,
    });
  });

  it.each(["/proc", "/proc/new/deep"])("cannot be put into %s, where nothing can be made", async (destination) => {
    writeFileSync(join(local, "small"), "x");
    const channel = await supervisor.channel(services.files);
    await expect(upload(channel, { source: join(local, "small"), destination })).rejects.toMatchObject({
      code: "permission-denied",
      message: `nothing can be written at ${destination}`,
    });
  });

  it("cannot be put where the agent may not write", async () => {
    writeFileSync(join(local, "big"), randomBytes(3_000_000));
    const channel = await supervisor.channel(services.files);
    const attempt = upload(channel, { source: join(local, "big"), destination: "/etc/openshell-test" });
    await expect(attempt).rejects.toMatchObject({ code: "permission-denied" });
  });
});
