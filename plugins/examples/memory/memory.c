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

/* say emits a JSON string's text with its escapes resolved. */
static int say(sbx_json text) {
  sbx_str s = sbx_text(text);
  sbx_buf b = sbx_buf_new(s.n + 1);
  for (size_t i = 0; i < s.n; i++) {
    char c = s.p[i];
    if (c == '\\' && i + 1 < s.n) {
      switch (s.p[++i]) {
        case 'n': c = '\n'; break;
        case 't': c = '\t'; break;
        case 'r': c = '\r'; break;
        case 'u': c = '?'; i += 4; break; /* control characters: not worth more here */
        default: c = s.p[i];
      }
    }
    sbx_put(&b, (sbx_str){&c, 1});
  }
  return b.full ? SBX_E_TOO_LARGE : sbx_emit(1, b.p, (int32_t)b.n);
}

static int32_t exited(int code) {
  sbx_buf b = sbx_buf_new(64);
  sbx_put(&b, SBX_STR("{\"status\":\"exited\",\"exitCode\":"));
  sbx_put_int(&b, code);
  sbx_put(&b, SBX_STR("}"));
  return sbx_reply((sbx_str){b.p, b.n});
}

/* run knows: true, false, echo WORD…, note TEXT, notes. */
static int32_t run(sbx_json ref, sbx_json args) {
  sbx_str name = sbx_text(sbx_item(args, 0));
  sbx_json notes = sbx_get(ref, SBX_STR("notes"));
  if (sbx_eq(name, SBX_STR("true"))) return exited(0);
  if (sbx_eq(name, SBX_STR("false"))) return exited(1);
  if (sbx_eq(name, SBX_STR("echo"))) {
    for (size_t i = 1;; i++) {
      sbx_json word = sbx_item(args, i);
      if (word.p == NULL) break;
      if (i > 1) sbx_emit(1, " ", 1);
      if (say(word) < 0) return INTERNAL("the words are too long");
    }
    sbx_emit(1, "\n", 1);
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
      say(note);
      sbx_emit(1, "\n", 1);
    }
    return exited(0);
  }
  return sbx_fail(SBX_STR("NotFound"), SBX_STR("no such command; there are true, false, echo, note and notes"));
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
