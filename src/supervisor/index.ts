/** Nothing of the supervisor is used by other rooms; its program is main.ts. */
export { type End, type EndReason, exitCodes } from "./state.ts";
