/** Where something listens: an IP address and a port. */
export interface Address {
  readonly host: string;
  readonly port: number;
}
