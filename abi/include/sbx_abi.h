/* Generated from schema.json by abi/internal/gen. DO NOT EDIT. */
#ifndef SBX_ABI_H
#define SBX_ABI_H

#include <stdint.h>

#define SBX_OP_CREATE 1
#define SBX_OP_STATUS 2
#define SBX_OP_EXEC 3
#define SBX_OP_INPUT 4
#define SBX_OP_RESIZE 5
#define SBX_OP_SIGNAL 6
#define SBX_OP_READ 7
#define SBX_OP_WRITE 8
#define SBX_OP_LIST_DIR 9
#define SBX_OP_STAT 10
#define SBX_OP_REMOVE 11
#define SBX_OP_MKDIR 12
#define SBX_OP_PAUSE 13
#define SBX_OP_RESUME 14
#define SBX_OP_DESTROY 15
#define SBX_OP_LIST 16
#define SBX_OP_PORT 17

#define SBX_E_BADF (-1) /* Unknown, stale, replayed or foreign handle. */
#define SBX_E_AGAIN (-2) /* Not now; try again later. */
#define SBX_E_CANCELED (-3) /* The caller gave up. */
#define SBX_E_DEADLINE (-4) /* The call's deadline passed. */
#define SBX_E_TOO_LARGE (-5) /* Over a size limit, or the buffer is too small. */
#define SBX_E_NO_CAPTURE (-6) /* A token this route needs was not captured or was refused; call a capturing route again. */
#define SBX_E_TRUNCATED (-7) /* The stream ended without its proper end. */
#define SBX_E_DENIED (-8) /* The approved manifest does not allow it. */
#define SBX_E_NETWORK (-9) /* No answer: DNS, connect, TLS or transport failed. */
#define SBX_E_INVALID (-10) /* A malformed argument or document. */
#define SBX_E_NOT_FOUND (-11) /* No such header or item. */
#define SBX_E_UNSUPPORTED (-12) /* Not available in this phase or kind of plugin. */
#define SBX_E_LIMIT (-13) /* A count limit was reached. */
#define SBX_E_STATE (-14) /* Not in this state. */
#define SBX_E_IO (-15) /* The caller's stream failed. */
#define SBX_E_END (-16) /* No more frames. */

#define SBX_MAX_INPUT 1048576 /* Bytes of a request document. */
#define SBX_MAX_OUTPUT 1048576 /* Bytes of a reply document. */
#define SBX_MAX_ERROR_DOCUMENT 65536 /* Bytes of an error document. */
#define SBX_MAX_REF 65536 /* Bytes of a checkpointed reference. */
#define SBX_MAX_META 1048576 /* Bytes of an http_open meta document. */
#define SBX_MAX_HTTP_REQUEST 1048576 /* Bytes of a request body; file content streams and is not counted. */
#define SBX_MAX_HTTP_RESPONSE 8388608 /* Bytes of a complete response body. */
#define SBX_MAX_LOG_PER_CALL 65536 /* Bytes of log per call. */
#define SBX_MAX_HANDLES 64 /* Open response handles per call. */
#define SBX_DEFAULT_MEMORY 33554432 /* Bytes of linear memory. */
#define SBX_DEFAULT_TABLE 65536 /* Table elements. */
#define SBX_DEFAULT_WALL_MILLIS 30000 /* Wall clock per call; exec has its own deadline. */

#define SBX_IMPORT(name) __attribute__((import_module("sbx_v1"), import_name(#name)))

/* Length in bytes of this call's request. */
SBX_IMPORT(in_len) int32_t sbx_in_len(void);

/* Copies up to len request bytes from off to dst; returns the count. */
SBX_IMPORT(in_read) int32_t sbx_in_read(void * dst, int32_t off, int32_t len);

/* Appends to the reply. 0 or an errno. */
SBX_IMPORT(out_write) int32_t sbx_out_write(const void * src, int32_t len);

/* Appends to the error document. 0 or an errno. */
SBX_IMPORT(err_write) int32_t sbx_err_write(const void * src, int32_t len);

/* Stores a reference durably before it returns: kind 0 the sandbox's, 1 the exec's. JSON, at most 64 KiB. */
SBX_IMPORT(checkpoint) int32_t sbx_checkpoint(int32_t kind, const void * src, int32_t len);

/* Sends the request of an approved route and returns a response handle, or an errno. meta is an HTTPMeta document; a body is accepted only for plugin-driven routes. */
SBX_IMPORT(http_open) int64_t sbx_http_open(const void * meta, int32_t mlen, const void * body, int32_t blen);

/* HTTP status code. */
SBX_IMPORT(http_status) int32_t sbx_http_status(int64_t h);

/* Copies a response header that the route declares; returns its full length, or E_NOT_FOUND. */
SBX_IMPORT(http_header) int32_t sbx_http_header(int64_t h, const void * name, int32_t nlen, void * dst, int32_t cap);

/* Reads the guest-visible body; 0 is its end. */
SBX_IMPORT(http_read) int32_t sbx_http_read(int64_t h, void * dst, int32_t cap);

/* Copies the next decoded frame of a framed body; E_END after the last, E_TOO_LARGE with the frame kept when cap is too small. */
SBX_IMPORT(http_next) int32_t sbx_http_next(int64_t h, void * dst, int32_t cap);

/* Releases the response. */
SBX_IMPORT(http_close) int32_t sbx_http_close(int64_t h);

/* Plugin-driven only: delivers output. stream 1 stdout, 2 stderr, 3 file content. Blocks for back-pressure. */
SBX_IMPORT(emit) int32_t sbx_emit(int32_t stream, const void * src, int32_t len);

/* Writes a log line: 0 debug, 1 info, 2 warn, 3 error. */
SBX_IMPORT(log) int32_t sbx_log(int32_t level, const void * src, int32_t len);

/* Sleeps; returns 0, or E_CANCELED or E_DEADLINE when the call ends first. */
SBX_IMPORT(sleep_ms) int32_t sbx_sleep_ms(int32_t ms);

/* Wall clock in Unix milliseconds, coarse. */
SBX_IMPORT(now_ms) int64_t sbx_now_ms(void);

/* Fills dst from the host's CSPRNG. */
SBX_IMPORT(random) int32_t sbx_random(void * dst, int32_t len);

/* 1 when this call should stop, else 0. */
SBX_IMPORT(canceled) int32_t sbx_canceled(void);

#endif
