/*
 * memory: the smallest provider plugin there can be.
 *
 * It has no vendor and no network. A sandbox is nothing but the JSON document
 * that the plugin checkpoints, {"state":"running","notes":[…]}, which the host
 * gives back with every call. Commands are words this file knows.
 *
 * Its manifest has no protected transport, so the host never gives it a
 * reference: not even its initialiser runs for such a create.
 */
#define SBX_ARENA (192 * 1024)
#include "sbx.h"

static int is_running(sbx_json ref) { return sbx_eq(sbx_text(sbx_get(ref, SBX_STR("state"))), SBX_STR("running")); }

static int32_t internal(const char *text, size_t n) { return sbx_fail(SBX_STR("Internal"), (sbx_str){text, n}); }
#define INTERNAL(text) internal((text), sizeof(text) - 1)

/* keep checkpoints the sandbox: its notes, and one more when there is one. */
static int keep(sbx_json notes, const sbx_json *more) {
  sbx_buf b = sbx_buf_new(64 * 1024);
  sbx_put(&b, SBX_STR("{\"state\":\"running\",\"notes\":["));
  size_t n = 0;
  for (;; n++) {
    sbx_json note = sbx_item(notes, n);
    if (note.p == NULL) break;
    if (n > 0) sbx_put(&b, SBX_STR(","));
    sbx_put(&b, (sbx_str){note.p, note.n});
  }
  if (more != NULL) {
    if (n > 0) sbx_put(&b, SBX_STR(","));
    sbx_put(&b, (sbx_str){more->p, more->n});
  }
  sbx_put(&b, SBX_STR("]}"));
  return b.full ? SBX_E_TOO_LARGE : sbx_checkpoint(0, b.p, (int32_t)b.n);
}

static int32_t status_reply(sbx_json ref) {
  if (is_running(ref)) return sbx_reply(SBX_STR("{\"state\":\"running\"}"));
  return sbx_reply(SBX_STR("{\"state\":\"gone\"}"));
}

/* utf8 appends a code point. */
static void utf8(sbx_buf *b, uint32_t c) {
  char s[4];
  size_t n = 0;
  if (c < 0x80) {
    s[n++] = (char)c;
  } else if (c < 0x800) {
    s[n++] = (char)(0xc0 | c >> 6);
    s[n++] = (char)(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    s[n++] = (char)(0xe0 | c >> 12);
    s[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    s[n++] = (char)(0x80 | (c & 0x3f));
  } else {
    s[n++] = (char)(0xf0 | c >> 18);
    s[n++] = (char)(0x80 | (c >> 12 & 0x3f));
    s[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    s[n++] = (char)(0x80 | (c & 0x3f));
  }
  sbx_put(b, (sbx_str){s, n});
}

/* hex4 reads the four digits of a \u escape. */
static uint32_t hex4(const char *p) {
  uint32_t v = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return v;
}

/* say emits a JSON string's text with its escapes resolved. */
static int say(int32_t stream, sbx_json text) {
  sbx_str s = sbx_text(text);
  sbx_buf b = sbx_buf_new(s.n + 1);
  for (size_t i = 0; i < s.n; i++) {
    if (s.p[i] != '\\' || i + 1 >= s.n) {
      sbx_put(&b, (sbx_str){s.p + i, 1});
      continue;
    }
    char c = s.p[++i];
    if (c == 'u' && i + 4 < s.n) {
      uint32_t v = hex4(s.p + i + 1);
      i += 4;
      if (v >= 0xd800 && v < 0xdc00 && i + 6 < s.n && s.p[i + 1] == '\\' && s.p[i + 2] == 'u') {
        v = 0x10000 + ((v - 0xd800) << 10) + (hex4(s.p + i + 3) - 0xdc00);
        i += 6;
      }
      utf8(&b, v);
      continue;
    }
    static const char from[] = "ntrbf", to[] = "\n\t\r\b\f";
    for (size_t k = 0; k < 5; k++)
      if (c == from[k]) {
        c = to[k];
        break;
      }
    sbx_put(&b, (sbx_str){&c, 1});
  }
  return b.full ? SBX_E_TOO_LARGE : sbx_emit(stream, b.p, (int32_t)b.n);
}

/* number reads a text of decimal digits; -1 when it is none. */
static int64_t number(sbx_json text) {
  sbx_str s = sbx_text(text);
  int64_t v = 0;
  if (s.n == 0 || s.n > 9) return -1;
  for (size_t i = 0; i < s.n; i++) {
    if (s.p[i] < '0' || s.p[i] > '9') return -1;
    v = v * 10 + (s.p[i] - '0');
  }
  return v;
}

static int32_t exited(int code) {
  sbx_buf b = sbx_buf_new(64);
  sbx_put(&b, SBX_STR("{\"status\":\"exited\",\"exitCode\":"));
  sbx_put_int(&b, code);
  sbx_put(&b, SBX_STR("}"));
  return sbx_reply((sbx_str){b.p, b.n});
}

/* words writes the arguments, each followed by end; without an end, with blanks
 * between them and a newline. */
static int words(sbx_json args, const char *end) {
  int rc = 0;
  for (size_t i = 1; rc >= 0; i++) {
    sbx_json word = sbx_item(args, i);
    if (word.p == NULL) break;
    if (end == NULL && i > 1) sbx_emit(1, " ", 1);
    rc = say(1, word);
    if (end != NULL) sbx_emit(1, end, 1);
  }
  if (end == NULL) sbx_emit(1, "\n", 1);
  return rc;
}

/* run knows: true, false, exit CODE, echo WORD…, args WORD…, say OUT ERR, note TEXT
 * and notes. */
static int32_t run(sbx_json ref, sbx_json args) {
  sbx_str name = sbx_text(sbx_item(args, 0));
  sbx_json notes = sbx_get(ref, SBX_STR("notes"));
  if (sbx_eq(name, SBX_STR("true"))) return exited(0);
  if (sbx_eq(name, SBX_STR("false"))) return exited(1);
  if (sbx_eq(name, SBX_STR("exit"))) {
    int64_t code = number(sbx_item(args, 1));
    if (code < 0 || code > 255) {
      sbx_emit(2, "usage: exit CODE\n", 17);
      return exited(2);
    }
    return exited((int)code);
  }
  if (sbx_eq(name, SBX_STR("echo")) || sbx_eq(name, SBX_STR("args"))) {
    if (words(args, sbx_eq(name, SBX_STR("args")) ? "" : NULL) < 0) return INTERNAL("the words are too long");
    return exited(0);
  }
  if (sbx_eq(name, SBX_STR("say"))) {
    sbx_json out = sbx_item(args, 1), err = sbx_item(args, 2);
    if (out.p != NULL && say(1, out) < 0) return INTERNAL("the text is too long");
    if (err.p != NULL && say(2, err) < 0) return INTERNAL("the text is too long");
    return exited(0);
  }
  if (sbx_eq(name, SBX_STR("note"))) {
    sbx_json text = sbx_item(args, 1);
    if (text.p == NULL) {
      sbx_emit(2, "usage: note TEXT\n", 17);
      return exited(2);
    }
    if (keep(notes, &text) < 0) {
      sbx_emit(2, "the notebook is full\n", 21);
      return exited(1);
    }
    return exited(0);
  }
  if (sbx_eq(name, SBX_STR("notes"))) {
    for (size_t i = 0;; i++) {
      sbx_json note = sbx_item(notes, i);
      if (note.p == NULL) break;
      say(1, note);
      sbx_emit(1, "\n", 1);
    }
    return exited(0);
  }
  return sbx_fail(SBX_STR("NotFound"), SBX_STR("no such command; there are true, false, exit, echo, args, say, note and notes"));
}

static int32_t exec(sbx_json q, sbx_json ref) {
  if (!is_running(ref)) return sbx_fail(SBX_STR("NotFound"), SBX_STR("the sandbox is gone"));
  sbx_json e = sbx_get(q, SBX_STR("exec"));
  if (sbx_item(sbx_get(sbx_get(e, SBX_STR("env")), SBX_STR("names")), 0).p != NULL)
    return sbx_fail(SBX_STR("Unsupported"), SBX_STR("commands here have no environment"));
  sbx_json args = sbx_get(e, SBX_STR("args"));
  if (sbx_item(args, 0).p == NULL) return sbx_fail(SBX_STR("Unsupported"), SBX_STR("there is no shell here"));
  return run(ref, args);
}

int32_t sbx_handle(int32_t op, sbx_json q) {
  sbx_json ref = sbx_get(q, SBX_STR("ref")), none = {NULL, 0};
  switch (op) {
    case SBX_OP_CREATE:
      if (sbx_item(sbx_get(sbx_get(q, SBX_STR("env")), SBX_STR("names")), 0).p != NULL)
        return sbx_fail(SBX_STR("Unsupported"), SBX_STR("sandboxes here have no environment"));
      if (keep(none, NULL) < 0) return INTERNAL("the checkpoint was refused");
      return sbx_reply(SBX_STR("{\"state\":\"running\"}"));
    case SBX_OP_STATUS: return status_reply(ref);
    case SBX_OP_EXEC: return exec(q, ref);
    case SBX_OP_DESTROY:
      if (sbx_checkpoint(0, "{\"state\":\"gone\"}", 16) < 0) return INTERNAL("the checkpoint was refused");
      return sbx_reply(SBX_STR("{}"));
    case SBX_OP_LIST:
      /* Not an empty list: nobody keeps one. */
      return sbx_fail(SBX_STR("Unsupported"), SBX_STR("a sandbox here is known by its reference alone"));
  }
  return sbx_fail(SBX_STR("Unsupported"), SBX_STR("this plugin does not implement the operation"));
}
