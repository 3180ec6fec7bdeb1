// Generated from schema.json by abi/internal/gen. DO NOT EDIT.

//! Constants and imports of the wire contract.

pub const OP_CREATE: i32 = 1;
pub const OP_STATUS: i32 = 2;
pub const OP_EXEC: i32 = 3;
pub const OP_INPUT: i32 = 4;
pub const OP_RESIZE: i32 = 5;
pub const OP_SIGNAL: i32 = 6;
pub const OP_READ: i32 = 7;
pub const OP_WRITE: i32 = 8;
pub const OP_LIST_DIR: i32 = 9;
pub const OP_STAT: i32 = 10;
pub const OP_REMOVE: i32 = 11;
pub const OP_MKDIR: i32 = 12;
pub const OP_PAUSE: i32 = 13;
pub const OP_RESUME: i32 = 14;
pub const OP_DESTROY: i32 = 15;
pub const OP_LIST: i32 = 16;
pub const OP_PORT: i32 = 17;

/// Unknown, stale, replayed or foreign handle.
pub const E_BADF: i32 = -1;
/// Not now; try again later.
pub const E_AGAIN: i32 = -2;
/// The caller gave up.
pub const E_CANCELED: i32 = -3;
/// The call's deadline passed.
pub const E_DEADLINE: i32 = -4;
/// Over a size limit, or the buffer is too small.
pub const E_TOO_LARGE: i32 = -5;
/// A token this route needs was not captured or was refused; call a capturing route again.
pub const E_NO_CAPTURE: i32 = -6;
/// The stream ended without its proper end.
pub const E_TRUNCATED: i32 = -7;
/// The approved manifest does not allow it.
pub const E_DENIED: i32 = -8;
/// No answer: DNS, connect, TLS or transport failed.
pub const E_NETWORK: i32 = -9;
/// A malformed argument or document.
pub const E_INVALID: i32 = -10;
/// No such header or item.
pub const E_NOT_FOUND: i32 = -11;
/// Not available in this phase or kind of plugin.
pub const E_UNSUPPORTED: i32 = -12;
/// A count limit was reached.
pub const E_LIMIT: i32 = -13;
/// Not in this state.
pub const E_STATE: i32 = -14;
/// The caller's stream failed.
pub const E_IO: i32 = -15;
/// No more frames.
pub const E_END: i32 = -16;

/// Bytes of a request document.
pub const MAX_INPUT: usize = 1048576;
/// Bytes of a reply document.
pub const MAX_OUTPUT: usize = 1048576;
/// Bytes of an error document.
pub const MAX_ERROR_DOCUMENT: usize = 65536;
/// Bytes of a checkpointed reference.
pub const MAX_REF: usize = 65536;
/// Bytes of an http_open meta document.
pub const MAX_META: usize = 1048576;
/// Bytes of a request body; file content streams and is not counted.
pub const MAX_HTTP_REQUEST: usize = 1048576;
/// Bytes of a complete response body.
pub const MAX_HTTP_RESPONSE: usize = 8388608;
/// Bytes of log per call.
pub const MAX_LOG_PER_CALL: usize = 65536;
/// Open response handles per call.
pub const MAX_HANDLES: usize = 64;
/// Bytes of linear memory.
pub const DEFAULT_MEMORY: usize = 33554432;
/// Table elements.
pub const DEFAULT_TABLE: usize = 65536;
/// Wall clock per call; exec has its own deadline.
pub const DEFAULT_WALL_MILLIS: usize = 30000;

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "sbx_v1")]
extern "C" {
    /// Length in bytes of this call's request.
    pub fn in_len() -> i32;
    /// Copies up to len request bytes from off to dst; returns the count.
    pub fn in_read(dst: *mut u8, off: i32, len: i32) -> i32;
    /// Appends to the reply. 0 or an errno.
    pub fn out_write(src: *const u8, len: i32) -> i32;
    /// Appends to the error document. 0 or an errno.
    pub fn err_write(src: *const u8, len: i32) -> i32;
    /// Stores a reference durably before it returns: kind 0 the sandbox's, 1 the exec's. JSON, at most 64 KiB.
    pub fn checkpoint(kind: i32, src: *const u8, len: i32) -> i32;
    /// Sends the request of an approved route and returns a response handle, or an errno. meta is an HTTPMeta document; a body is accepted only for plugin-driven routes.
    pub fn http_open(meta: *const u8, mlen: i32, body: *const u8, blen: i32) -> i64;
    /// HTTP status code.
    pub fn http_status(h: i64) -> i32;
    /// Copies a response header that the route declares; returns its full length, or E_NOT_FOUND.
    pub fn http_header(h: i64, name: *const u8, nlen: i32, dst: *mut u8, cap: i32) -> i32;
    /// Reads the guest-visible body; 0 is its end.
    pub fn http_read(h: i64, dst: *mut u8, cap: i32) -> i32;
    /// Copies the next decoded frame of a framed body; E_END after the last, E_TOO_LARGE with the frame kept when cap is too small.
    pub fn http_next(h: i64, dst: *mut u8, cap: i32) -> i32;
    /// Releases the response.
    pub fn http_close(h: i64) -> i32;
    /// Plugin-driven only: delivers output. stream 1 stdout, 2 stderr, 3 file content. Blocks for back-pressure.
    pub fn emit(stream: i32, src: *const u8, len: i32) -> i32;
    /// Writes a log line: 0 debug, 1 info, 2 warn, 3 error.
    pub fn log(level: i32, src: *const u8, len: i32) -> i32;
    /// Sleeps; returns 0, or E_CANCELED or E_DEADLINE when the call ends first.
    pub fn sleep_ms(ms: i32) -> i32;
    /// Wall clock in Unix milliseconds, coarse.
    pub fn now_ms() -> i64;
    /// Fills dst from the host's CSPRNG.
    pub fn random(dst: *mut u8, len: i32) -> i32;
    /// 1 when this call should stop, else 0.
    pub fn canceled() -> i32;
}
