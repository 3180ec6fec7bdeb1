package fake

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// builtins by name; filled by a function because some of them look names up.
func builtins() map[string]Command {
	return map[string]Command{
		"true":         func(context.Context, *Proc) int { return 0 },
		"false":        func(context.Context, *Proc) int { return 1 },
		"exit":         cmdExit,
		"echo":         func(_ context.Context, p *Proc) int { return say(p.Stdout(), p.Args[1:]) },
		"write-stderr": func(_ context.Context, p *Proc) int { return say(p.Stderr(), p.Args[1:]) },
		"print":        func(_ context.Context, p *Proc) int { return print1(p.Stdout(), p.Args[1:]) },
		"print-stderr": func(_ context.Context, p *Proc) int { return print1(p.Stderr(), p.Args[1:]) },
		"args":         cmdArgs,
		"printenv":     cmdPrintenv,
		"env":          cmdEnv,
		"cat":          cmdCat,
		"sleep":        cmdSleep,
		"spam":         cmdSpam,
		"pwd":          func(_ context.Context, p *Proc) int { return say(p.Stdout(), []string{p.Dir}) },
		"whoami":       func(_ context.Context, p *Proc) int { return say(p.Stdout(), []string{p.User()}) },
		"tty":          cmdTTY,
		"winch":        cmdWinch,
		"raise":        cmdRaise,
		"ignore":       cmdIgnore,
		"background":   cmdBackground,
		"foreground":   cmdForeground,
		"append":       cmdAppend,
		"ln":           cmdLn,
		"sh":           cmdSh,
	}
}

// Builtins lists the names of the built-in commands, sorted:
//
//	true, false        exit code 0, 1
//	exit N             exit code N
//	echo ARG…          the arguments, a space between them, and a newline, on stdout
//	write-stderr ARG…  the same on stderr
//	print ARG…         the arguments and nothing else on stdout; print-stderr likewise
//	args ARG…          each argument, followed by a NUL
//	printenv NAME      the value and a newline; exit code 1 when it is not set
//	env                every NAME=VALUE, sorted, followed by a newline; with -0 by a NUL
//	cat [FILE…]        the files, or the input
//	sleep SECONDS      waits; fractions are allowed
//	spam N             writes N bytes to stdout
//	pwd, whoami        the working directory, the user
//	tty                "COLSxROWS"; exit code 1 without a terminal
//	winch              prints tty's answer now and after the next change of size
//	raise SIGNAL       sends the process a signal
//	ignore SIGNAL CMD… runs a command that ignores the signal
//	background [-hold] [-setsid] CMD…
//	                   starts a child that goes on alone: holding the output
//	                   streams, in its own session
//	foreground [-setsid] CMD…
//	                   starts a child that holds the output, and waits for it
//	append FILE TEXT   adds a line to a file
//	ln -s TARGET NAME  makes a symbolic link
//	sh -c SCRIPT       runs the fake's shell
func Builtins() []string { return slices.Sorted(maps.Keys(builtins())) }

// command finds a command by name; nil when there is none.
func (p *Provider) command(name string) Command {
	if c, ok := p.opts.Commands[name]; ok {
		return c
	}
	if name == "sh" {
		return cmdSh
	}
	return builtins()[name]
}

func say(w io.Writer, args []string) int {
	return print1(w, []string{strings.Join(args, " ") + "\n"})
}

func print1(w io.Writer, args []string) int {
	for _, a := range args {
		if _, err := io.WriteString(w, a); err != nil {
			return 1
		}
	}
	return 0
}

// usage reports a misused command, with its name only.
func usage(p *Proc) int {
	_, _ = io.WriteString(p.Stderr(), "fake: "+p.Args[0]+": wrong arguments\n")
	return 2
}

func cmdExit(_ context.Context, p *Proc) int {
	if len(p.Args) == 1 {
		return 0
	}
	n, err := strconv.Atoi(p.Args[1])
	if err != nil {
		return usage(p)
	}
	return n
}

func cmdArgs(_ context.Context, p *Proc) int {
	for _, a := range p.Args[1:] {
		if print1(p.Stdout(), []string{a, "\x00"}) != 0 {
			return 1
		}
	}
	return 0
}

func cmdPrintenv(_ context.Context, p *Proc) int {
	if len(p.Args) != 2 {
		return usage(p)
	}
	v, ok := p.Getenv(p.Args[1])
	if !ok {
		return 1
	}
	return say(p.Stdout(), []string{v})
}

func cmdEnv(_ context.Context, p *Proc) int {
	end := "\n"
	if len(p.Args) == 2 && p.Args[1] == "-0" {
		end = "\x00"
	}
	for k, v := range p.Env().All() {
		if print1(p.Stdout(), []string{k, "=", string(v.Reveal()), end}) != 0 {
			return 1
		}
	}
	return 0
}

func cmdCat(_ context.Context, p *Proc) int {
	if len(p.Args) == 1 {
		if _, err := io.Copy(p.Stdout(), p.Stdin()); err != nil {
			return 1
		}
		return 0
	}
	for _, name := range p.Args[1:] {
		data, err := p.ReadFile(name)
		if err != nil {
			_ = print1(p.Stderr(), []string{"fake: cat: cannot read the file\n"})
			return 1
		}
		if print1(p.Stdout(), []string{string(data)}) != 0 {
			return 1
		}
	}
	return 0
}

func cmdSleep(_ context.Context, p *Proc) int {
	if len(p.Args) < 2 {
		return usage(p)
	}
	s, err := strconv.ParseFloat(p.Args[1], 64)
	if err != nil || s < 0 || s > 1e6 {
		return usage(p)
	}
	p.Sleep(time.Duration(s * float64(time.Second)))
	return 0
}

func cmdSpam(_ context.Context, p *Proc) int {
	if len(p.Args) != 2 {
		return usage(p)
	}
	n, err := strconv.ParseInt(p.Args[1], 10, 64)
	if err != nil || n < 0 {
		return usage(p)
	}
	block := bytes.Repeat([]byte("0123456789abcde\n"), 2048)
	for n > 0 {
		k := min(n, int64(len(block)))
		if _, err := p.Stdout().Write(block[:k]); err != nil {
			return 1
		}
		n -= k
	}
	return 0
}

func cmdTTY(_ context.Context, p *Proc) int {
	cols, rows, ok := p.TTY()
	if !ok {
		return 1
	}
	return say(p.Stdout(), []string{strconv.Itoa(int(cols)) + "x" + strconv.Itoa(int(rows))})
}

func cmdWinch(ctx context.Context, p *Proc) int {
	changed := p.Trap("WINCH")
	if code := cmdTTY(ctx, p); code != 0 {
		return code
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return cmdTTY(ctx, p)
}

func cmdRaise(ctx context.Context, p *Proc) int {
	if len(p.Args) != 2 || !slices.Contains(signals, p.Args[1]) {
		return usage(p)
	}
	p.Raise(p.Args[1])
	if ctx.Err() == nil {
		return 0
	}
	return 1
}

func cmdIgnore(ctx context.Context, p *Proc) int {
	if len(p.Args) < 3 || !slices.Contains(signals, p.Args[1]) {
		return usage(p)
	}
	p.Trap(p.Args[1])
	return p.Call(ctx, p.Args[2:])
}

func cmdBackground(_ context.Context, p *Proc) int {
	o, args := SpawnOptions{}, p.Args[1:]
	for ; len(args) > 0; args = args[1:] {
		switch args[0] {
		case "-hold":
			o.HoldOutput = true
			continue
		case "-setsid":
			o.NewSession = true
			continue
		}
		break
	}
	if len(args) == 0 {
		return usage(p)
	}
	if _, err := p.Spawn(args, o); err != nil {
		_ = print1(p.Stderr(), []string{"fake: background: cannot start\n"})
		return 126
	}
	return 0
}

func cmdForeground(_ context.Context, p *Proc) int {
	o, args := SpawnOptions{HoldOutput: true}, p.Args[1:]
	if len(args) > 0 && args[0] == "-setsid" {
		o.NewSession, args = true, args[1:]
	}
	if len(args) == 0 {
		return usage(p)
	}
	wait, err := p.Spawn(args, o)
	if err != nil {
		_ = print1(p.Stderr(), []string{"fake: foreground: cannot start\n"})
		return 126
	}
	return wait()
}

func cmdAppend(_ context.Context, p *Proc) int {
	if len(p.Args) != 3 {
		return usage(p)
	}
	if err := p.AppendFile(p.Args[1], []byte(p.Args[2]+"\n")); err != nil {
		_ = print1(p.Stderr(), []string{"fake: append: cannot write the file\n"})
		return 1
	}
	return 0
}

func cmdLn(_ context.Context, p *Proc) int {
	if len(p.Args) != 4 || p.Args[1] != "-s" {
		return usage(p)
	}
	if err := p.Symlink(p.Args[2], p.Args[3]); err != nil {
		_ = print1(p.Stderr(), []string{"fake: ln: cannot make the link\n"})
		return 1
	}
	return 0
}

func cmdSh(ctx context.Context, p *Proc) int {
	if len(p.Args) < 3 || p.Args[1] != "-c" {
		return usage(p)
	}
	return p.t.e.sb.p.opts.Shell(ctx, p)
}
