/*
 * sbx.h: write an sbxhost provider plugin in C.
 *
 * Freestanding: no libc is needed. Define sbx_handle() and build a reactor:
 *
 *   clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -Wl,--export=sbx_v1_call \
 *         -o plugin.wasm plugin.c
 *
 * Every call starts from the module's initial state: static variables set in one
 * call are gone in the next. What must last goes into sbx_checkpoint.
 */
#ifndef SBX_H
#define SBX_H

#include <stddef.h>
#include <stdint.h>

#include "sbx_abi.h"

/* ---- memory: one arena a call, never freed ---------------------------- */

#ifndef SBX_ARENA
#define SBX_ARENA (256 * 1024)
#endif

static unsigned char sbx_arena[SBX_ARENA];
static size_t sbx_used;

/* sbx_alloc returns n bytes, or NULL when the arena is used up. */
static inline void *sbx_alloc(size_t n) {
  size_t at = (sbx_used + 7u) & ~(size_t)7u;
  if (n > SBX_ARENA || at > SBX_ARENA - n) return NULL;
  sbx_used = at + n;
  return sbx_arena + at;
}

/* ---- texts -------------------------------------------------------------- */

typedef struct {
  const char *p;
  size_t n;
} sbx_str;

#define SBX_STR(lit) ((sbx_str){(lit), sizeof(lit) - 1})

static inline int sbx_eq(sbx_str a, sbx_str b) {
  if (a.n != b.n) return 0;
  for (size_t i = 0; i < a.n; i++)
    if (a.p[i] != b.p[i]) return 0;
  return 1;
}

/* ---- reading JSON: a value is a range of the document ------------------- */

typedef struct {
  const char *p; /* NULL: no such value */
  size_t n;
} sbx_json;

static inline size_t sbx_ws(sbx_json d, size_t i) {
  while (i < d.n && (d.p[i] == ' ' || d.p[i] == '\n' || d.p[i] == '\t' || d.p[i] == '\r')) i++;
  return i;
}

/* sbx_end returns the index behind the value that starts at i. The host writes
 * well-formed documents only; what is not is treated as ending there. */
static inline size_t sbx_end(sbx_json d, size_t i) {
  int depth = 0, text = 0;
  for (; i < d.n; i++) {
    char c = d.p[i];
    if (text) {
      if (c == '\\') i++;
      else if (c == '"') { text = 0; if (depth == 0) return i + 1; }
      continue;
    }
    switch (c) {
      case '"': text = 1; break;
      case '{': case '[': depth++; break;
      case '}': case ']':
        if (depth == 0) return i;
        if (--depth == 0) return i + 1;
        break;
      case ',': case ' ': case '\n': case '\t': case '\r':
        if (depth == 0) return i;
        break;
    }
  }
  return d.n;
}

/* sbx_get returns a member of an object. */
static inline sbx_json sbx_get(sbx_json d, sbx_str name) {
  sbx_json none = {NULL, 0};
  size_t i = sbx_ws(d, 0);
  if (d.p == NULL || i >= d.n || d.p[i] != '{') return none;
  i = sbx_ws(d, i + 1);
  while (i < d.n && d.p[i] == '"') {
    size_t k = sbx_end(d, i);
    sbx_str key = {d.p + i + 1, k > i + 1 ? k - i - 2 : 0};
    i = sbx_ws(d, k);
    if (i >= d.n || d.p[i] != ':') return none;
    i = sbx_ws(d, i + 1);
    size_t e = sbx_end(d, i);
    if (sbx_eq(key, name)) return (sbx_json){d.p + i, e - i};
    i = sbx_ws(d, e);
    if (i >= d.n || d.p[i] != ',') return none;
    i = sbx_ws(d, i + 1);
  }
  return none;
}

/* sbx_item returns the k-th element of an array. */
static inline sbx_json sbx_item(sbx_json d, size_t k) {
  sbx_json none = {NULL, 0};
  size_t i = sbx_ws(d, 0);
  if (d.p == NULL || i >= d.n || d.p[i] != '[') return none;
  i = sbx_ws(d, i + 1);
  while (i < d.n && d.p[i] != ']') {
    size_t e = sbx_end(d, i);
    if (k-- == 0) return (sbx_json){d.p + i, e - i};
    i = sbx_ws(d, e);
    if (i >= d.n || d.p[i] != ',') return none;
    i = sbx_ws(d, i + 1);
  }
  return none;
}

/* sbx_int returns an integer, 0 when it is none. */
static inline int64_t sbx_int(sbx_json v) {
  int64_t n = 0;
  size_t i = 0;
  int neg = v.n > 0 && v.p[0] == '-';
  for (i = (size_t)neg; i < v.n && v.p[i] >= '0' && v.p[i] <= '9'; i++) n = n * 10 + (v.p[i] - '0');
  return neg ? -n : n;
}

/* sbx_text returns a string without escapes resolved: enough for identifiers,
 * states and names. */
static inline sbx_str sbx_text(sbx_json v) {
  if (v.n < 2 || v.p[0] != '"') return (sbx_str){"", 0};
  return (sbx_str){v.p + 1, v.n - 2};
}

/* ---- writing JSON ------------------------------------------------------- */

typedef struct {
  char *p;
  size_t n, cap;
  int full;
} sbx_buf;

static inline sbx_buf sbx_buf_new(size_t cap) {
  sbx_buf b = {sbx_alloc(cap), 0, cap, 0};
  if (b.p == NULL) { b.cap = 0; b.full = 1; }
  return b;
}

static inline void sbx_put(sbx_buf *b, sbx_str s) {
  if (b->full || s.n > b->cap - b->n) { b->full = 1; return; }
  for (size_t i = 0; i < s.n; i++) b->p[b->n + i] = s.p[i];
  b->n += s.n;
}

/* sbx_put_text writes a string with escapes. */
static inline void sbx_put_text(sbx_buf *b, sbx_str s) {
  static const char hex[] = "0123456789abcdef";
  sbx_put(b, SBX_STR("\""));
  for (size_t i = 0; i < s.n; i++) {
    unsigned char c = (unsigned char)s.p[i];
    if (c == '"' || c == '\\') {
      char e[2] = {'\\', (char)c};
      sbx_put(b, (sbx_str){e, 2});
    } else if (c < 0x20) {
      char e[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
      sbx_put(b, (sbx_str){e, 6});
    } else {
      sbx_put(b, (sbx_str){s.p + i, 1});
    }
  }
  sbx_put(b, SBX_STR("\""));
}

static inline void sbx_put_int(sbx_buf *b, int64_t v) {
  char d[24];
  size_t at = sizeof d;
  uint64_t u = v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;
  do { d[--at] = (char)('0' + u % 10); u /= 10; } while (u);
  if (v < 0) d[--at] = '-';
  sbx_put(b, (sbx_str){d + at, sizeof d - at});
}

/* ---- the call ----------------------------------------------------------- */

/* sbx_request reads this call's whole request. */
static inline sbx_json sbx_request(void) {
  sbx_json none = {NULL, 0};
  int32_t n = sbx_in_len();
  char *p = n < 0 ? NULL : sbx_alloc((size_t)n);
  if (p == NULL) return none;
  for (int32_t off = 0; off < n;) {
    int32_t got = sbx_in_read(p + off, off, n - off);
    if (got <= 0) return none;
    off += got;
  }
  return (sbx_json){p, (size_t)n};
}

/* sbx_fail writes an error document; return its result from sbx_handle. code is
 * one of the host's codes, for example "NotFound". */
static inline int32_t sbx_fail(sbx_str code, sbx_str message) {
  sbx_buf b = sbx_buf_new(code.n + message.n * 6 + 64);
  sbx_put(&b, SBX_STR("{\"code\":"));
  sbx_put_text(&b, code);
  sbx_put(&b, SBX_STR(",\"message\":"));
  sbx_put_text(&b, message);
  sbx_put(&b, SBX_STR("}"));
  if (!b.full) sbx_err_write(b.p, (int32_t)b.n);
  return 1;
}

/* sbx_reply writes the reply document; return its result from sbx_handle. */
static inline int32_t sbx_reply(sbx_str doc) {
  if (sbx_out_write(doc.p, (int32_t)doc.n) >= 0) return 0;
  return sbx_fail(SBX_STR("Internal"), SBX_STR("the host refused the reply"));
}

/* sbx_handle carries out one operation: SBX_OP_… It is the plugin's to define. */
int32_t sbx_handle(int32_t op, sbx_json request);

__attribute__((export_name("sbx_v1_call"))) int32_t sbx_v1_call(int32_t op) {
  sbx_used = 0;
  sbx_json q = sbx_request();
  if (q.p == NULL) return sbx_fail(SBX_STR("Internal"), SBX_STR("the request does not fit the arena; raise SBX_ARENA"));
  return sbx_handle(op, q);
}

/* Compilers turn loops into calls of these. */
#ifndef SBX_HAVE_LIBC
void *memcpy(void *restrict d, const void *restrict s, size_t n) {
  unsigned char *a = d;
  const unsigned char *b = s;
  while (n--) *a++ = *b++;
  return d;
}
void *memset(void *d, int c, size_t n) {
  unsigned char *a = d;
  while (n--) *a++ = (unsigned char)c;
  return d;
}
#endif

#endif
