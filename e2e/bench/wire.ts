/**
 * What our typed gRPC costs over grpc-js itself: the same bytes through the same method, once as ready-made Buffers and once as messages.
 * Runs alternate A B B A in one process, so that whatever else the machine does meets both alike; what is compared is CPU time.
 *
 *   npm run bench -- wire [--mebibytes 32] [--rounds 6] [--out DIRECTORY]
 *
 * Prints JSON, and Markdown to standard error; with --out also writes wire.json and wire.md.
 */

import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import {
  addService,
  boundary,
  type Client,
  createChannel,
  createServer,
  grpcClient,
  type Implementation,
  openshell,
} from "../../src/wire/index.ts";
import { machine, median, publish } from "./_report.ts";

const { values } = parseArgs({
  options: {
    mebibytes: { type: "string", default: "32" },
    rounds: { type: "string", default: "6" },
    out: { type: "string" },
  },
});
const at = machine();
const mebibytes = Number(values.mebibytes);
const rounds = Number(values.rounds);
const chunk = Buffer.alloc(64 * 1024, 7);
const chunks = (mebibytes * 1024 * 1024) / chunk.length;

/** Bytes one way or there and back, through typed messages; resolves to how many arrived. */
interface Case {
  readonly name: string;
  readonly path: string;
  /** The same message as bytes on the wire. */
  readonly frame: Buffer;
  readonly requests: number;
  typed(): Promise<number>;
}

const shell: Implementation<typeof openshell.OpenShell> = {
  async *execSandbox() {
    for (let index = 0; index < chunks; index += 1) {
      yield { payload: { case: "stdout", value: { data: chunk } } };
    }
  },
  async *forwardTcp(requests) {
    for await (const { payload } of requests) if (payload.case === "data") yield { payload };
  },
};
const runtime: Implementation<typeof boundary.Boundary> = {
  async *channel(requests) {
    for await (const { payload } of requests) if (payload.case === "data") yield { payload };
  },
};

async function* dataFrames() {
  for (let index = 0; index < chunks; index += 1) yield { payload: { case: "data" as const, value: chunk } };
}

function cases(client: Client<typeof openshell.OpenShell>, inner: Client<typeof boundary.Boundary>): readonly Case[] {
  return [
    {
      name: "ExecSandbox, stdout to the user",
      path: "/openshell.v1.OpenShell/ExecSandbox",
      frame: field(1, field(1, chunk)),
      requests: 1,
      async typed() {
        let bytes = 0;
        for await (const { payload } of client.execSandbox({})) {
          if (payload.case === "stdout") bytes += payload.value.data.length;
        }
        return bytes;
      },
    },
    {
      name: "ForwardTcp, there and back",
      path: "/openshell.v1.OpenShell/ForwardTcp",
      frame: field(2, chunk),
      requests: chunks,
      async typed() {
        let bytes = 0;
        for await (const { payload } of client.forwardTcp(dataFrames())) {
          if (payload.case === "data") bytes += payload.value.length;
        }
        return bytes;
      },
    },
    {
      name: "Boundary.Channel, there and back",
      path: "/openshell.boundary.v1.Boundary/Channel",
      frame: field(3, chunk),
      requests: chunks,
      async typed() {
        let bytes = 0;
        for await (const { payload } of inner.channel(dataFrames())) {
          if (payload.case === "data") bytes += payload.value.length;
        }
        return bytes;
      },
    },
  ];
}

/** One length-delimited protobuf field. */
function field(number: number, value: Buffer): Buffer {
  const length: number[] = [];
  let rest = value.length;
  for (; rest > 0x7f; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length, rest]), value]);
}

const same = (bytes: Buffer) => bytes;

/** A server that only moves Buffers, in grpc-js' own way. */
function rawServer(all: readonly Case[]): grpc.Server {
  const server = createServer();
  for (const { path, frame, requests } of all) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const definition = {
      path,
      requestStream: true,
      responseStream: true,
      requestSerialize: same,
      requestDeserialize: same,
      responseSerialize: same,
      responseDeserialize: same,
    };
    const handle = (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
      if (requests > 1) {
        call.on("data", (message: Buffer) => {
          if (call.write(message)) return;
          call.pause();
          call.once("drain", () => call.resume());
        });
        call.on("end", () => call.end());
        return;
      }
      let left = chunks;
      const fill = () => {
        while (left > 0) {
          left -= 1;
          if (!call.write(frame)) {
            call.once("drain", fill);
            return;
          }
        }
        call.end();
      };
      call.resume();
      fill();
    };
    server.addService({ [name]: definition }, { [name]: handle });
  }
  return server;
}

async function raw(channel: grpc.Client, { path, frame, requests }: Case): Promise<number> {
  const call = channel.makeBidiStreamRequest<Buffer, Buffer>(path, same, same, new grpc.Metadata(), {});
  let left = requests;
  const feed = () => {
    while (left > 0) {
      left -= 1;
      if (!call.write(requests === 1 ? Buffer.alloc(0) : frame)) {
        call.once("drain", feed);
        return;
      }
    }
    call.end();
  };
  feed();
  let bytes = 0;
  return new Promise((resolve, reject) => {
    call.on("data", (message: Buffer) => {
      bytes += message.length - (frame.length - chunk.length);
    });
    call.on("error", reject);
    call.on("end", () => resolve(bytes));
  });
}

async function listen(server: grpc.Server): Promise<grpc.Client> {
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return createChannel(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
}

/** CPU milliseconds per MiB of one run. */
async function measure(run: () => Promise<number>): Promise<number> {
  const before = process.cpuUsage();
  const bytes = await run();
  const { user, system } = process.cpuUsage(before);
  if (bytes !== chunks * chunk.length) throw new Error(`${bytes} bytes arrived, ${chunks * chunk.length} were sent`);
  return (user + system) / 1000 / mebibytes;
}

const typedServer = createServer();
addService(typedServer, openshell.OpenShell, shell, () => undefined);
addService(typedServer, boundary.Boundary, runtime, () => undefined);
const typedChannel = await listen(typedServer);
const all = cases(grpcClient(openshell.OpenShell, typedChannel), grpcClient(boundary.Boundary, typedChannel));
const plainServer = rawServer(all);
const plainChannel = await listen(plainServer);

const results = [];
for (const one of all) {
  const samples = { raw: [] as number[], typed: [] as number[], ratio: [] as number[] };
  const runRaw = () => measure(() => raw(plainChannel, one));
  const runTyped = () => measure(() => one.typed());
  // The first run of each pays for compilation.
  await runRaw();
  await runTyped();
  for (let round = 0; round < rounds; round += 1) {
    const first = await runRaw();
    const typed = [await runTyped(), await runTyped()];
    const last = await runRaw();
    samples.raw.push(first, last);
    samples.typed.push(...typed);
    samples.ratio.push(((typed[0] ?? 0) + (typed[1] ?? 0)) / (first + last));
  }
  results.push({
    name: one.name,
    rawMsPerMiB: median(samples.raw),
    typedMsPerMiB: median(samples.typed),
    ratio: median(samples.ratio),
    samples,
  });
}
typedChannel.close();
plainChannel.close();
typedServer.forceShutdown();
plainServer.forceShutdown();

const report = {
  machine: at,
  mebibytes,
  rounds,
  chunk: chunk.length,
  results,
};
const markdown = [
  `CPU of client and server together, per MiB in messages of ${chunk.length / 1024} KiB; median of ${rounds} rounds A B B A of ${mebibytes} MiB, Node ${process.version}.`,
  "",
  "| stream | grpc-js with Buffers, ms/MiB | typed, ms/MiB | ratio |",
  "|---|--:|--:|--:|",
  ...results.map(
    ({ name, rawMsPerMiB, typedMsPerMiB, ratio }) =>
      `| ${name} | ${rawMsPerMiB.toFixed(2)} | ${typedMsPerMiB.toFixed(2)} | ${ratio.toFixed(2)} |`,
  ),
  "",
].join("\n");
publish("wire", report, markdown, values.out);
