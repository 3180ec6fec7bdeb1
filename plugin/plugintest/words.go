package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// Words say what commands a plugin's sandboxes know that have no POSIX shell. The
// keys are among those below, the values are the words of the command, in which
// {name} stands for what the kit fills in:
//
//	exit       {code}               ends with this exit code
//	print      {stdout} {stderr}    writes exactly these texts
//	printArgs  {args}               writes each argument and a NUL; {args} becomes as
//	                                many words as there are
//	printEnv   {name}               writes the variable's value; exit code 3 without
//	cat                             copies its input to its output
//	dir                             writes the working directory and a newline
//	readFile   {file}               writes the file
//	append     {file} {line}        adds a line to a file
//	printSleep {text} {seconds} {marker}
//	                                writes the text at once, then sleeps
//	spam       {bytes}              writes so many bytes of anything
//
// exit and print are needed. What only a command that is not there could prove is
// reported as not proved.
type Words map[string][]string

// wordsOf are the placeholders of each command.
var wordsOf = map[string][]string{
	"exit": {"{code}"}, "print": {"{stdout}", "{stderr}"}, "printArgs": {"{args}"}, "printEnv": {"{name}"}, "cat": nil, "dir": nil,
	"readFile": {"{file}"}, "append": {"{file}", "{line}"}, "printSleep": {"{text}", "{seconds}", "{marker}"}, "spam": {"{bytes}"},
}

// ParseWords reads Words from a JSON object.
func ParseWords(doc []byte) (Words, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	var w Words
	if err := d.Decode(&w); err != nil {
		return nil, fmt.Errorf("the file of commands: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("the file of commands: there is something after the object")
	}
	return w, w.check()
}

func (w Words) check() error {
	for name, words := range w {
		holes, ok := wordsOf[name]
		if !ok {
			return fmt.Errorf("the file of commands: the kit has no use for %q", name)
		}
		if len(words) == 0 {
			return fmt.Errorf("the file of commands: %q is empty", name)
		}
		for _, hole := range holes {
			if !slices.ContainsFunc(words, func(s string) bool { return strings.Contains(s, hole) }) {
				return fmt.Errorf("the file of commands: %q has no place for %s", name, hole)
			}
		}
	}
	for _, name := range []string{"exit", "print"} {
		if w[name] == nil {
			return fmt.Errorf("the file of commands: %q is missing", name)
		}
	}
	return nil
}

// fill replaces placeholders, each of which is given with its text.
func (w Words) fill(name string, with ...string) providertest.Command {
	return providertest.Command{Args: fillWords(w[name], nil, with...)}
}

func fillWords(words, args []string, with ...string) []string {
	r := strings.NewReplacer(with...)
	var out []string
	for _, word := range words {
		if word == "{args}" {
			out = append(out, args...)
			continue
		}
		out = append(out, r.Replace(word))
	}
	return out
}

// commands are the same for providertest.
func (w Words) commands() providertest.Commands {
	c := providertest.Commands{
		Exit:  func(code int) providertest.Command { return w.fill("exit", "{code}", strconv.Itoa(code)) },
		Print: func(o, e string) providertest.Command { return w.fill("print", "{stdout}", o, "{stderr}", e) },
	}
	if words := w["printArgs"]; words != nil {
		c.PrintArgs = func(args ...string) providertest.Command {
			return providertest.Command{Args: fillWords(words, args)}
		}
	}
	if w["printEnv"] != nil {
		c.PrintEnv = func(name string) providertest.Command { return w.fill("printEnv", "{name}", name) }
	}
	if w["cat"] != nil {
		c.Cat = func() providertest.Command { return w.fill("cat") }
	}
	if w["dir"] != nil {
		c.Dir = func() providertest.Command { return w.fill("dir") }
	}
	if w["readFile"] != nil {
		c.ReadFile = func(name string) providertest.Command { return w.fill("readFile", "{file}", name) }
	}
	if w["append"] != nil {
		c.Append = func(file, line string) providertest.Command {
			return w.fill("append", "{file}", file, "{line}", line)
		}
	}
	if w["printSleep"] != nil {
		c.PrintSleep = func(text string, d time.Duration, marker string) providertest.Command {
			seconds := strconv.Itoa(int((d + time.Second - 1) / time.Second))
			return w.fill("printSleep", "{text}", text, "{seconds}", seconds, "{marker}", marker)
		}
	}
	if w["spam"] != nil {
		c.Spam = func(n int64) providertest.Command { return w.fill("spam", "{bytes}", strconv.FormatInt(n, 10)) }
	}
	return c
}

// shell are the commands of sandboxes that have one. A fake has no root file system
// of its own, so the working directory's real path is cut to the sandbox's. (It is
// put together, for fakes replace the root's name in a command line.)
func shell(fake bool) providertest.Commands {
	c := providertest.ShellCommands("/bin/sh")
	if fake {
		c.Dir = func() providertest.Command {
			return providertest.Command{Args: []string{"/bin/sh", "-c", `w=work; w=${w}space; pwd | sed "s|^.*/$w|/$w|"`}}
		}
	}
	return c
}

// say runs a command that writes text, in whatever words the sandbox knows.
func (k *kit) say(ctx context.Context, sb provider.Sandbox, text string) (execOut, error) {
	if k.opts.Words == nil {
		return sh(ctx, sb, "printf %s '"+text+"'")
	}
	return runIn(ctx, sb, k.opts.Words.commands().Print(text, "").Args)
}
