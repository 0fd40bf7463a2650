import manifest from "../../package.json" with { type: "json" };

/** Version of this build, as package.json has it. */
export const version: string = manifest.version;
