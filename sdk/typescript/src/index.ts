/**
 * The client of a Noncegate gateway, for Node 20 and later and for browsers.
 *
 * @packageDocumentation
 */
export { ConnectionError, NoncegateError, NotDone, Refused, Unknown, type ErrorData, type Reason } from './errors.js'
export { Gateway, signerOf } from './gateway.js'
export { notSent, type NonceHold, type NonceOptions } from './hold.js'
export type * from './types.js'
