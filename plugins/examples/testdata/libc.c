/* A plugin on a C library: malloc, snprintf and printf, all of wasi-libc. What it
 * prints becomes log lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SBX_ARENA (64 * 1024)
#include "sbx.h"

static int counted;

/* Runs in _initialize, before the snapshot that calls start from. */
__attribute__((constructor)) static void begin(void) { counted = 41; }

int32_t sbx_handle(int32_t op, sbx_json q) {
  char reply[128];
  switch (op) {
    case SBX_OP_CREATE:
      if (sbx_checkpoint(0, "{}", 2) < 0) return sbx_fail(SBX_STR("Internal"), SBX_STR("the checkpoint was refused"));
      return sbx_reply(SBX_STR("{\"state\":\"running\"}"));
    case SBX_OP_STATUS: return sbx_reply(SBX_STR("{\"state\":\"running\"}"));
    case SBX_OP_EXEC: {
      sbx_str word = sbx_text(sbx_item(sbx_get(sbx_get(q, SBX_STR("exec")), SBX_STR("args")), 0));
      char *text = malloc(word.n + 64);
      if (text == NULL) return sbx_fail(SBX_STR("Internal"), SBX_STR("no memory"));
      int n = snprintf(text, word.n + 64, "%.*s %d %.2f\n", (int)word.n, word.p, ++counted, 1.5);
      printf("wrote %d bytes\n", n);
      fflush(stdout);
      sbx_emit(1, text, n);
      free(text);
      snprintf(reply, sizeof reply, "{\"status\":\"exited\",\"exitCode\":%d}", (int)strlen("abc"));
      return sbx_reply((sbx_str){reply, strlen(reply)});
    }
  }
  return sbx_fail(SBX_STR("Unsupported"), SBX_STR("this plugin does not implement the operation"));
}
