package daytona

import (
	"maps"
	"slices"
	"strings"
)

// runner makes the script that runs one command. It is the standard input of the
// sandbox's shell (bash, zsh or sh), and so it is one compound command that reads
// from nowhere: a command that read its input would eat the rest of the script.
//
// It uses nothing but what is built into the shell, because everything it starts
// has the command's environment. Its own output is a single line, told from any
// noise by a random tag; the command's goes to files.
//
// The file TAG.run is made before the command is started, and only if it is not
// there: whoever finds it does nothing, however often the script arrives.
type runner struct {
	tag   string
	dir   string
	args  []string
	shell string // instead of args
	input string // path
	live  bool   // input is a pipe, held open until its control pipe is opened
	old   bool   // the daemon ignores envs: literals are part of the script
	env   map[string]string
	hide  []string // names to unset: a command of ours
	tty   bool
}

func file(tag, kind string) string { return base + "/" + tag + "." + kind }

// What the line says.
const (
	saidExited = "exited" // CODE FLAGS
	saidNoEnvs = "noenvs"
	saidAgain  = "again"
	saidNoBase = "nobase"
	saidNoDir  = "nodir"
	saidNoEnt  = "noent"
	saidNoExec = "noexec"
)

func (r runner) mark() string { return "sbx-" + r.tag }

func (r runner) script() string {
	var b strings.Builder
	w := func(parts ...string) {
		for _, p := range parts {
			b.WriteString(p)
		}
		b.WriteByte('\n')
	}
	w(`{ [ -z "${ZSH_VERSION-}" ] || emulate sh`)
	w(`_sbx_say() { printf '\n%s %s\n' `, r.mark(), ` "$*"; exit 0; }`)
	if r.old {
		for _, k := range slices.Sorted(maps.Keys(r.env)) {
			w(`export `, k, `=`, quote(r.env[k]))
		}
		w(`export `, markName, `=`, r.tag)
	} else {
		w(`[ "${`, markName, `-}" = `, r.tag, ` ] || _sbx_say `, saidNoEnvs)
	}
	if len(r.hide) > 0 {
		w(`unset `, strings.Join(r.hide, " "))
	}
	w(`set -C`)
	w(`if printf '%s' "$$" 2>/dev/null >`, file(r.tag, "run"), `; then :; elif [ -e `, file(r.tag, "run"), ` ]; then _sbx_say `, saidAgain, `; else _sbx_say `, saidNoBase, `; fi`)
	w(`set +C`)
	r.commandLine(w)
	if r.live {
		// Keeps the pipe open for writing, until somebody opens the other one.
		w(`( : <`, file(r.tag, "ctl"), ` ) 3>`, file(r.tag, "in"), ` </dev/null >/dev/null 2>&1 &`)
	}
	w(`trap : TERM INT HUP`)
	// The shell's own word about a death by signal goes to a file: without it
	// 130 and death by INT look the same.
	input := r.input
	if input == "" {
		input = "/dev/null"
	}
	w(`{ /bin/sh -c 'echo $$ >"$0.pid" && exec "$@"' `, base, `/`, r.tag, ` "$@" <`, input, ` >`, file(r.tag, "out"), ` 2>`, file(r.tag, "err"), `; _sbx_c=$?; } 2>`, file(r.tag, "note"))
	if r.live {
		w(`exec 3<>`, file(r.tag, "in"), ` 4<>`, file(r.tag, "ctl"))
	}
	w(`_sbx_f=-`)
	for _, f := range []struct{ kind, flag string }{{"out", "o"}, {"err", "e"}, {"note", "s"}} {
		w(`[ ! -s `, file(r.tag, f.kind), ` ] || _sbx_f=${_sbx_f}`, f.flag)
	}
	w(`_sbx_say `, saidExited, ` "$_sbx_c" "$_sbx_f"`)
	w(`} </dev/null`)
	return b.String()
}

// commandLine goes to the directory and sets the positional parameters, after it
// has looked for the program.
func (r runner) commandLine(w func(...string)) {
	w(`cd -- `, quote(r.dir), ` 2>/dev/null || _sbx_say `, saidNoDir)
	if r.shell != "" {
		w(`set -- /bin/sh -c `, quote(r.shell))
		return
	}
	words := make([]string, len(r.args))
	for i, a := range r.args {
		words[i] = quote(a)
	}
	w(`set -- `, strings.Join(words, " "))
	w(`case $1 in`)
	w(`*/*) if [ ! -e "$1" ]; then _sbx_say `, saidNoEnt, `; fi; if [ ! -f "$1" ] || [ ! -x "$1" ]; then _sbx_say `, saidNoExec, `; fi;;`)
	w(`*) _sbx_n=`, saidNoEnt, `; _sbx_i=$IFS; IFS=:; set -f`)
	w(`for _sbx_p in $PATH; do`)
	w(`if [ -f "${_sbx_p:-.}/$1" ]; then if [ -x "${_sbx_p:-.}/$1" ]; then _sbx_n=; break; else _sbx_n=`, saidNoExec, `; fi; fi`)
	w(`done; set +f; IFS=$_sbx_i`)
	w(`if [ -n "$_sbx_n" ]; then _sbx_say $_sbx_n; fi;;`)
	w(`esac`)
}

// said reads the runner's line out of a script's output; "" when there is none.
func (r runner) said(output string) (word, code, flags string) {
	_, line, ok := strings.Cut("\n"+output, "\n"+r.mark()+" ")
	if !ok {
		return "", "", ""
	}
	line, _, _ = strings.Cut(line, "\n")
	f := strings.Fields(line)
	switch len(f) {
	case 1:
		return f[0], "", ""
	case 3:
		return f[0], f[1], f[2]
	}
	return "", "", ""
}
