package leaktest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Form is one way in which a value can show itself.
type Form struct {
	// Kind names the way: "raw", "base64-std+1", "hex-lower" …
	Kind string
	Text string
	// Bytes: one of Go's own ways of printing a []byte, which no redactor
	// claims to know: nothing of ours may print bytes, and a workload may.
	Bytes bool
}

// MinForm is the length below which a form is too common to be looked for.
const MinForm = 8

// Forms returns the value in every form that a scan looks for, without
// duplicates. Those that Go itself makes of bytes are among them, beside those
// that a redactor must know.
func Forms(value string) []Form {
	var out []Form
	seen := map[string]bool{}
	add := func(f Form) {
		if len(f.Text) >= MinForm && !seen[f.Text] {
			seen[f.Text] = true
			out = append(out, f)
		}
	}
	variants := []Form{{Text: value}, {Kind: "trimmed ", Text: strings.TrimSpace(value)}}
	if n := len(value); n > 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		variants = append(variants, Form{Kind: "unquoted ", Text: value[1 : n-1]})
	}
	for _, v := range variants {
		for _, f := range formsOf(v.Text) {
			f.Kind = v.Kind + f.Kind
			add(f)
		}
	}
	if strings.Contains(value, "\n") {
		for _, line := range strings.Split(value, "\n") {
			if line = strings.TrimSpace(line); len(line) >= MinForm && len(value) < 4096 {
				add(Form{Kind: "line", Text: line})
			}
		}
	}
	return out
}

func formsOf(v string) []Form {
	var out []Form
	add := func(kind, text string) { out = append(out, Form{Kind: kind, Text: text}) }
	add("raw", v)
	lf := strings.ReplaceAll(v, "\r\n", "\n")
	add("crlf", strings.ReplaceAll(lf, "\n", "\r\n"))
	add("lf", lf)
	add("lines joined by blanks", strings.ReplaceAll(lf, "\n", " "))
	add("lines joined", strings.ReplaceAll(lf, "\n", ""))

	for offset := range 3 {
		add(fmt.Sprintf("base64-std+%d", offset), base64At(v, offset, "+/"))
		add(fmt.Sprintf("base64-url+%d", offset), base64At(v, offset, "-_"))
	}
	add("hex-lower", hexOf(v, "0123456789abcdef"))
	add("hex-upper", hexOf(v, "0123456789ABCDEF"))

	const unreserved = "-_.~"
	for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
		add("percent-strict", percent(v, unreserved, false, digits))
		add("percent-component", percent(v, unreserved+"!*'()", false, digits))
		add("percent-query", percent(v, unreserved, true, digits))
		add("percent-form", percent(v, "-_.*", true, digits))
		add("percent-userinfo", percentOnly(v, ":@/", digits))
	}

	minimal := jsonOf(v, jsonStyle{})
	add("json", minimal)
	add("json-slash", jsonOf(v, jsonStyle{slash: true}))
	add("json-html", jsonOf(v, jsonStyle{html: true}))
	add("json-ascii", jsonOf(v, jsonStyle{ascii: true}))
	add("json-ascii-html", jsonOf(v, jsonStyle{ascii: true, html: true}))
	add("json-dotnet", jsonOf(v, jsonStyle{dotnet: true, ascii: true}))
	add("json-in-json", jsonOf(minimal, jsonStyle{}))
	add("json-html-in-json", jsonOf(jsonOf(v, jsonStyle{html: true}), jsonStyle{}))
	q := strconv.Quote(v)
	add("go-quoted", q[1:len(q)-1])
	q = strconv.QuoteToASCII(v)
	add("go-quoted-ascii", q[1:len(q)-1])

	add("shell-single", strings.ReplaceAll(v, "'", `'\''`))
	add("shell-single-mixed", strings.ReplaceAll(v, "'", `'"'"'`))
	add("shell-ansi-c", ansiC(v))
	add("shell-backslash", backslashed(v))
	add("shell-double", escapeSet(v, "\"\\$`"))
	for _, c := range []string{"'", `"`, "$"} {
		add("doubled "+c, strings.ReplaceAll(v, c, c+c))
	}

	for _, quote := range []string{"&quot;", "&#34;"} {
		for _, apostrophe := range []string{"&apos;", "&#39;", "&#x27;"} {
			add("markup", strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, quote, "'", apostrophe).Replace(v))
		}
	}
	add("markup-text", strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(v))

	return append(out, Form{"go-decimal", decimal(v), true}, Form{"go-syntax", goSyntax(v), true})
}

// base64At encodes v as it looks when offset bytes precede it in the stream,
// keeping only the characters that v alone decides.
func base64At(v string, offset int, last string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	table := alphabet + last
	var b strings.Builder
	first := (8*offset + 5) / 6
	end := 8 * (offset + len(v)) / 6
	for i := first; i < end; i++ {
		six := 0
		for bit := 6 * i; bit < 6*i+6; bit++ {
			at := bit - 8*offset
			six = six<<1 | int(v[at/8]>>(7-at%8))&1
		}
		b.WriteByte(table[six])
	}
	return b.String()
}

func hexOf(v, digits string) string {
	var b strings.Builder
	for i := range len(v) {
		b.WriteByte(digits[v[i]>>4])
		b.WriteByte(digits[v[i]&15])
	}
	return b.String()
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// percent encodes every byte but letters, digits and those of keep; a blank as
// "+" if plus.
func percent(v, keep string, plus bool, digits string) string {
	var b strings.Builder
	for i := range len(v) {
		switch c := v[i]; {
		case alphanumeric(c) || strings.IndexByte(keep, c) >= 0:
			b.WriteByte(c)
		case c == ' ' && plus:
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// percentOnly encodes only the bytes of set.
func percentOnly(v, set, digits string) string {
	var b strings.Builder
	for i := range len(v) {
		if c := v[i]; strings.IndexByte(set, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

type jsonStyle struct{ slash, html, ascii, dotnet bool }

// jsonOf is the inside of a JSON string.
func jsonOf(v string, style jsonStyle) string {
	var b strings.Builder
	unit := func(u uint16) {
		if style.dotnet {
			fmt.Fprintf(&b, `\u%04X`, u)
		} else {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	short := map[rune]byte{'\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f', '\\': '\\'}
	for _, r := range v {
		switch {
		case r == '"' && style.dotnet:
			unit('"')
		case r == '"':
			b.WriteString(`\"`)
		case short[r] != 0:
			b.WriteByte('\\')
			b.WriteByte(short[r])
		case r == '/' && style.slash:
			b.WriteString(`\/`)
		case r < 0x20,
			style.html && strings.ContainsRune("<>&\u2028\u2029", r),
			style.dotnet && strings.ContainsRune("<>&'+`", r),
			style.ascii && r >= 0x7f && r < 0x10000:
			unit(uint16(r))
		case style.ascii && r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			unit(uint16(hi))
			unit(uint16(lo))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func escapeSet(v, set string) string {
	var b strings.Builder
	for i := range len(v) {
		if strings.IndexByte(set, v[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// ansiC is the inside of bash's $'…'.
func ansiC(v string) string {
	return strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(v)
}

// backslashed is what bash's printf %q makes of a value without newlines: "#"
// counts only at the start, "~" also after ":" and "=".
func backslashed(v string) string {
	var b strings.Builder
	for i := range len(v) {
		c := v[i]
		if strings.IndexByte(" \t!\"$&'()*,;<>?[\\]^`{|}", c) >= 0 || c == '#' && i == 0 ||
			c == '~' && (i == 0 || v[i-1] == ':' || v[i-1] == '=') {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

func decimal(v string) string {
	parts := make([]string, len(v))
	for i := range len(v) {
		parts[i] = strconv.Itoa(int(v[i]))
	}
	return strings.Join(parts, " ")
}

func goSyntax(v string) string {
	parts := make([]string, len(v))
	for i := range len(v) {
		parts[i] = fmt.Sprintf("%#x", v[i])
	}
	return strings.Join(parts, ", ")
}
