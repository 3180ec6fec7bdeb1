package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The encoders are total: each yields something for any bytes, or "" when the
// encoding cannot carry them.

// jsonMinimal escapes what JSON requires and nothing else.
func jsonMinimal(s string) string {
	return mapBytes(s, func(b *strings.Builder, c byte) {
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if c < 0x20 {
				fmt.Fprintf(b, `\u%04x`, c)
			} else {
				b.WriteByte(c)
			}
		}
	})
}

// jsonGo is what encoding/json writes, with <, > and & escaped.
func jsonGo(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(out[1 : len(out)-1])
}

// jsonASCII escapes everything beyond ASCII, as Python and PHP do.
func jsonASCII(s string) string { return escapeRunes(jsonMinimal(s), "", `\u%04x`) }

// jsonDotNet is System.Text.Json's default: upper-case \u escapes for all that
// HTML could misread.
func jsonDotNet(s string) string {
	if !utf8.ValidString(s) {
		return ""
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f || strings.ContainsRune("\"'&+<>`", r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return escapeRunes(b.String(), "", `\u%04X`)
}

// escapeRunes writes every rune beyond ASCII, and every one in extra, by format
// in UTF-16 units.
func escapeRunes(s, extra, format string) string {
	if !utf8.ValidString(s) {
		return ""
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(&b, format, 0xd800+(r>>10))
			fmt.Fprintf(&b, format, 0xdc00+(r&0x3ff))
		case r >= 0x80 || strings.ContainsRune(extra, r):
			fmt.Fprintf(&b, format, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func goQuoted(s string) string      { q := strconv.Quote(s); return q[1 : len(q)-1] }
func goQuotedASCII(s string) string { q := strconv.QuoteToASCII(s); return q[1 : len(q)-1] }

const (
	alnum      = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	upperHex   = "0123456789ABCDEF"
	lowerHex   = "0123456789abcdef"
	unreserved = alnum + "-_.~"
)

// percentPolicies lists which bytes each kind of percent encoder leaves alone,
// and whether a blank becomes a plus sign.
var percentPolicies = []struct {
	kind string
	keep string // bytes left alone; if empty, all but drop
	drop string
	plus bool
}{
	{kind: "percent-component", keep: unreserved + "!*'()"},      // JavaScript encodeURIComponent
	{kind: "percent-strict", keep: unreserved},                   // RFC 3986
	{kind: "percent-query", keep: unreserved, plus: true},        // Go, Python quote_plus
	{kind: "percent-form", keep: alnum + "*-_.", plus: true},     // Java, WHATWG forms
	{kind: "percent-path", keep: unreserved + "$&+:=@"},          // Go url.PathEscape
	{kind: "percent-slash", keep: unreserved + "/"},              // Python quote
	{kind: "percent-uri", keep: unreserved + ";,/?:@&=+$!*'()#"}, // JavaScript encodeURI
	{kind: "percent-user", keep: unreserved + "$&+,;="},          // Go url.UserPassword
	{kind: "percent-minimal", drop: ":@/"},                       // SQLAlchemy
	{kind: "percent-userinfo", keep: unreserved + "!$&'()*+,;="}, // RFC 3986 userinfo
}

func percent(s, keep, drop string, plus bool, hexDigits string) string {
	return mapBytes(s, func(b *strings.Builder, c byte) {
		switch {
		case plus && c == ' ':
			b.WriteByte('+')
		case keep != "" && strings.IndexByte(keep, c) >= 0, keep == "" && strings.IndexByte(drop, c) < 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	})
}

// base64Part holds the characters of a base64 text that are fixed by the value
// when k bytes stand before it, and which six-bit values the half-known
// characters beside them can have.
type base64Part struct {
	text        string
	left, right uint64
}

func base64Aligned(v string, k int) base64Part {
	all := base64.RawStdEncoding.EncodeToString(append(make([]byte, k, k+len(v)), v...))
	first := (8*k + 5) / 6
	bits := 8 * (k + len(v))
	p := base64Part{text: all[first : bits/6]}
	switch k {
	case 1: // two unknown bits, then four of the value
		for x := range uint64(4) {
			p.left |= 1 << (x<<4 | uint64(v[0]>>4))
		}
	case 2: // four unknown bits, then two
		for x := range uint64(16) {
			p.left |= 1 << (x<<2 | uint64(v[0]>>6))
		}
	}
	last := uint64(v[len(v)-1])
	switch bits % 6 {
	case 2:
		for x := range uint64(16) {
			p.right |= 1 << ((last&3)<<4 | x)
		}
	case 4:
		for x := range uint64(4) {
			p.right |= 1 << ((last&15)<<2 | x)
		}
	}
	return p
}

func hexLower(s string) string { return hex.EncodeToString([]byte(s)) }
func hexUpper(s string) string { return strings.ToUpper(hexLower(s)) }

// shellANSI is the inside of bash's $'…'.
func shellANSI(s string, octal bool) string {
	return mapBytes(s, func(b *strings.Builder, c byte) {
		if i := strings.IndexByte("\a\b\x1b\f\n\r\t\v\\'", c); i >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abEfnrtv\'`[i])
		} else if c < 0x20 || c == 0x7f || octal && c >= 0x80 {
			fmt.Fprintf(b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	})
}

// escapeBytes puts a backslash before each byte of set.
func escapeBytes(s, set string) string {
	return mapBytes(s, func(b *strings.Builder, c byte) {
		if strings.IndexByte(set, c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	})
}

// escapeAllBut puts a backslash before each ASCII byte that is not in keep.
func escapeAllBut(s, keep string) string {
	return mapBytes(s, func(b *strings.Builder, c byte) {
		if c < 0x80 && strings.IndexByte(keep, c) < 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	})
}

func mapBytes(s string, write func(*strings.Builder, byte)) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/4)
	for i := range len(s) {
		write(&b, s[i])
	}
	return b.String()
}
