package fake

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Shell is the default interpreter of ExecRequest.Shell: a deliberately small
// part of sh. It knows
//
//	words in '…', "…" or plain, with backslash outside single quotes
//	$NAME, ${NAME}, ${#NAME} and $? outside single quotes, never split into words
//	; newline && || and comments
//	> FILE and >> FILE for the standard output
//	exit [N]
//
// Everything else that means something to a real shell (| & ( ) ` $( < * ? [
// assignments, loops) is refused with exit code 2, so that a test never passes
// by accident. Give Options.Shell to have more.
func Shell(ctx context.Context, p *Proc) int {
	steps, err := parse(p.Args[2])
	if err != nil {
		_, _ = io.WriteString(p.Stderr(), "fake shell: "+err.Error()+"\n")
		return 2
	}
	code := 0
	for _, s := range steps {
		if ctx.Err() != nil {
			return 1
		}
		if s.after == "&&" && code != 0 || s.after == "||" && code == 0 {
			continue
		}
		args := make([]string, len(s.words))
		for i, w := range s.words {
			args[i] = w.expand(p, code)
		}
		if len(args) == 0 {
			continue
		}
		if args[0] == "exit" {
			if len(args) == 1 {
				return code
			}
			return cmdExit(ctx, &Proc{t: p.t, Args: args, Dir: p.Dir})
		}
		code = runStep(ctx, p, s, args, code)
	}
	return code
}

func runStep(ctx context.Context, p *Proc, s step, args []string, last int) int {
	if s.file == nil {
		return p.Call(ctx, args)
	}
	// echo and print are all that is worth redirecting here.
	var b strings.Builder
	switch args[0] {
	case "echo":
		say(&b, args[1:])
	case "print":
		print1(&b, args[1:])
	default:
		_, _ = io.WriteString(p.Stderr(), "fake shell: only echo and print can be redirected\n")
		return 2
	}
	var err error
	if name := s.file.expand(p, last); s.add {
		err = p.AppendFile(name, []byte(b.String()))
	} else {
		err = p.WriteFile(name, []byte(b.String()))
	}
	if err != nil {
		_, _ = io.WriteString(p.Stderr(), "fake shell: cannot write the file\n")
		return 1
	}
	return 0
}

// word is a list of parts: literal text, or the name of a variable.
type word []part

type part struct {
	text     string
	variable bool // text is a name; "#NAME" for its length, "?" for the last code
}

func (w word) expand(p *Proc, last int) string {
	var b strings.Builder
	for _, part := range w {
		switch {
		case !part.variable:
			b.WriteString(part.text)
		case part.text == "?":
			b.WriteString(strconv.Itoa(last))
		case part.text[0] == '#':
			v, _ := p.Getenv(part.text[1:])
			b.WriteString(strconv.Itoa(len(v)))
		default:
			v, _ := p.Getenv(part.text)
			b.WriteString(v)
		}
	}
	return b.String()
}

// step is one simple command.
type step struct {
	after string // "", "&&" or "||": when it runs
	words []word
	file  word // where its output goes, if anywhere
	add   bool
}

var (
	errShellSyntax = errors.New("syntax error")
	errShellMore   = errors.New("this needs a real shell; see fake.Shell for what is understood")
)

// parser reads a script.
type parser struct {
	s     string
	i     int
	steps []step
	cur   step
	into  bool // the next word is a file name
}

func parse(script string) ([]step, error) {
	p := &parser{s: script}
	for p.i < len(p.s) {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if p.into || len(p.cur.words) == 0 && p.cur.after != "" {
		return nil, errShellSyntax
	}
	p.flush("")
	return p.steps, nil
}

func (p *parser) flush(after string) {
	if len(p.cur.words) > 0 {
		p.steps = append(p.steps, p.cur)
	}
	p.cur = step{after: after}
}

func (p *parser) has(prefix string) bool {
	if !strings.HasPrefix(p.s[p.i:], prefix) {
		return false
	}
	p.i += len(prefix)
	return true
}

func (p *parser) next() error {
	switch {
	case p.has(" "), p.has("\t"):
		return nil
	case p.has("\n"), p.has(";"):
		if p.into || len(p.cur.words) == 0 && p.cur.after != "" {
			return errShellSyntax
		}
		p.flush("")
		return nil
	case p.has("&&"):
		return p.operator("&&")
	case p.has("||"):
		return p.operator("||")
	case p.has(">>"):
		return p.redirect(true)
	case p.has(">"):
		return p.redirect(false)
	case p.s[p.i] == '#':
		for p.i < len(p.s) && p.s[p.i] != '\n' {
			p.i++
		}
		return nil
	}
	w, err := p.word()
	if err != nil {
		return err
	}
	if p.into {
		p.cur.file, p.into = w, false
		return nil
	}
	if len(p.cur.words) == 0 && len(w) > 0 && !w[0].variable && strings.Contains(w[0].text, "=") {
		return errShellMore
	}
	p.cur.words = append(p.cur.words, w)
	return nil
}

func (p *parser) operator(op string) error {
	if p.into || len(p.cur.words) == 0 {
		return errShellSyntax
	}
	p.flush(op)
	return nil
}

func (p *parser) redirect(add bool) error {
	if p.into || len(p.cur.words) == 0 || p.cur.file != nil {
		return errShellSyntax
	}
	p.into, p.cur.add = true, add
	return nil
}

func (p *parser) word() (word, error) {
	w := word{}
	text := func(s string) {
		if n := len(w); n > 0 && !w[n-1].variable {
			w[n-1].text += s
			return
		}
		w = append(w, part{text: s})
	}
	quoted := false
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case c == '"':
			quoted = !quoted
			p.i++
			text("")
		case c == '\\':
			p.i++
			if p.i == len(p.s) {
				return nil, errShellSyntax
			}
			if quoted && !strings.ContainsRune("$`\"\\", rune(p.s[p.i])) {
				text("\\")
			}
			text(p.s[p.i : p.i+1])
			p.i++
		case c == '`':
			return nil, errShellMore
		case c == '$':
			p.i++
			name, err := p.variable()
			if err != nil {
				return nil, err
			}
			if name == "" {
				text("$")
				continue
			}
			w = append(w, part{text: name, variable: true})
		case quoted:
			text(string(c))
			p.i++
		case c == '\'':
			end := strings.IndexByte(p.s[p.i+1:], '\'')
			if end < 0 {
				return nil, errShellSyntax
			}
			text(p.s[p.i+1 : p.i+1+end])
			p.i += end + 2
		case strings.IndexByte(" \t\n;>&|", c) >= 0:
			if c == '&' && !strings.HasPrefix(p.s[p.i:], "&&") || c == '|' && !strings.HasPrefix(p.s[p.i:], "||") {
				return nil, errShellMore
			}
			return w, nil
		case strings.IndexByte("()<*?[{}~!", c) >= 0:
			return nil, errShellMore
		default:
			text(string(c))
			p.i++
		}
	}
	if quoted {
		return nil, errShellSyntax
	}
	return w, nil
}

// variable reads what follows a dollar sign.
func (p *parser) variable() (string, error) {
	if p.has("?") {
		return "?", nil
	}
	brace := p.has("{")
	length := brace && p.has("#")
	start := p.i
	for p.i < len(p.s) && (p.s[p.i] == '_' || isAlnum(p.s[p.i])) {
		p.i++
	}
	name := p.s[start:p.i]
	switch {
	case brace && (name == "" || !p.has("}")):
		return "", errShellMore
	case name == "" && p.i < len(p.s) && strings.IndexByte("(!@*#-$", p.s[p.i]) >= 0:
		return "", errShellMore
	case length:
		return "#" + name, nil
	}
	return name, nil
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
