package redact

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// dialect is how a program reads backslash escapes in what it was told to print.
// \a \b \f \n \r \t \v \\ and \e are the same everywhere.
type dialect struct {
	octal     bool // \1 to \7 begin an octal number too, not only \0
	fourDigit bool // \0 may be followed by three digits, not two
	hex       bool // \xHH, \uHHHH, \UHHHHHHHH and \E
	stop      bool // \c ends the output
}

// dialects are those of the common shells: a plain echo interprets escapes in
// dash (Debian's sh), zsh and ksh, so a value that holds a backslash is printed
// as something else there.
var dialects = []dialect{
	{octal: true, fourDigit: true, stop: true},            // dash: echo, printf %b
	{fourDigit: true, hex: true, stop: true},              // bash and zsh: echo -e
	{octal: true, fourDigit: true, hex: true, stop: true}, // bash: printf %b
	{octal: true, hex: true},                              // bash: printf FORMAT, string literals of many languages
	{octal: true},                                         // dash: printf FORMAT
}

// interpretations returns what printing c with backslash escapes interpreted
// shows, as far as that differs from c. What is left of a value may be short or
// common; like the value itself it must pass the floors.
func interpretations(c string) []string {
	if strings.IndexByte(c, '\\') < 0 {
		return nil
	}
	var out []string
	for _, d := range dialects {
		text, stopped := d.interpret(c)
		text = core(text)
		if text == c || slices.Contains(out, text) || stopped && !partWorthy(text) {
			continue
		}
		out = append(out, text)
	}
	return out
}

// interpret reports also whether \c cut the text off.
func (d dialect) interpret(s string) (text string, stopped bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			i++
			continue
		}
		c, rest := s[i+1], s[i+2:]
		i += 2
		if k := strings.IndexByte(`abfnrtve\`, c); k >= 0 {
			b = append(b, "\a\b\f\n\r\t\v\x1b\\"[k])
			continue
		}
		switch {
		case c == 'c' && d.stop:
			return string(b), true
		case c == 'E' && d.hex:
			b = append(b, 0x1b)
		case c == '0' || '1' <= c && c <= '7' && d.octal:
			most := 2
			if c == '0' && d.fourDigit {
				most = 3
			}
			n := digits(rest, most, 8)
			v, _ := strconv.ParseUint(string(c)+rest[:n], 8, 16) // at most four octal digits
			b = append(b, byte(v))
			i += n
		case c == 'x' && d.hex && digits(rest, 2, 16) > 0:
			n := digits(rest, 2, 16)
			v, _ := strconv.ParseUint(rest[:n], 16, 8) // one or two digits
			b = append(b, byte(v))
			i += n
		case (c == 'u' || c == 'U') && d.hex && digits(rest, 1, 16) > 0:
			most := 4
			if c == 'U' {
				most = 8
			}
			n := digits(rest, most, 16)
			v, _ := strconv.ParseUint(rest[:n], 16, 32) // one to eight digits
			b = utf8.AppendRune(b, rune(v))
			i += n
		default:
			b = append(b, '\\', c)
		}
	}
	return string(b), false
}

// digits counts the digits of the base at the start of s, up to most.
func digits(s string, most, base int) int {
	n := 0
	for n < len(s) && n < most {
		c := s[n]
		if !(isDigit(c) && int(c-'0') < base || base == 16 && 'a' <= c|0x20 && c|0x20 <= 'f') {
			break
		}
		n++
	}
	return n
}
