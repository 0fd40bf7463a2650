/** Longest word of somebody else's that is kept, in characters: a name, a reason, an address. */
export const longestWord = 256;
/** Longest text of somebody else's that is kept, in characters; the newer API of Kubernetes Events has the same for theirs. */
export const longestText = 1024;

/** At most `length` characters of a text whose writer nobody can hold to a length. */
export function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1).toWellFormed()}…`;
}
