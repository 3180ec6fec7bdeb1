package redact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// form is one way in which a value may be printed. left and right are the
// six-bit values that half-known base64 characters beside it can have.
type form struct {
	kind        string
	text        string
	left, right uint64
}

// maxParts bounds the lines or leaves taken from one value.
const maxParts = 1024

// partFloor is the length from which a line or leaf is masked by itself.
const partFloor = 8

// core returns what of a value is worth finding: without surrounding white
// space and one pair of quotes. Whatever contains the value, in any byte-wise
// encoding, contains its core, so the rest needs no needles of its own; and
// what is taken off keeps the text around a marker whole (a line keeps its end,
// a JSON string its quotes).
func core(v string) string {
	v = strings.TrimSpace(v)
	if n := len(v); n >= 2 && v[0] == v[n-1] && (v[0] == '"' || v[0] == '\'' || v[0] == '`') {
		if inner := strings.TrimSpace(v[1 : n-1]); inner != "" {
			return inner
		}
	}
	return v
}

// inert reports a value that no escaping changes: only letters, digits and the
// three marks that every kind of encoder leaves alone. Most tokens are.
func inert(c string) bool {
	for i := range len(c) {
		if b := c[i]; !isAlnum(b) && b != '-' && b != '_' && b != '.' {
			return false
		}
	}
	return true
}

// allForms derives every form of one value.
func allForms(c string) []form {
	if !inert(c) {
		return escapedForms(c)
	}
	out := make([]form, 0, 9)
	out = append(out, form{kind: "raw", text: c})
	lower, upper := hexLower(c), hexUpper(c)
	out = append(out, form{kind: "hex-lower", text: lower})
	if upper != lower {
		out = append(out, form{kind: "hex-upper", text: upper})
	}
	return append(out, base64Forms(c)...)
}

// escapedForms derives every form of a value that some encoders escape.
func escapedForms(c string) []form {
	var out []form
	add := func(kind, text string) {
		if text != "" && !slices.ContainsFunc(out, func(f form) bool { return f.text == text && f.left == 0 && f.right == 0 }) {
			out = append(out, form{kind: kind, text: text})
		}
	}
	add("raw", c)
	texts := []string{c}
	if strings.ContainsAny(c, "\r\n") {
		lf := lineEnds.Replace(c)
		crlf := strings.ReplaceAll(lf, "\n", "\r\n")
		add("lf", lf)
		add("crlf", crlf)
		for _, t := range []string{lf, crlf} {
			if !slices.Contains(texts, t) {
				texts = append(texts, t)
			}
		}
		lines := strings.Split(lf, "\n")
		add("blank-joined", strings.Join(lines, " "))
		add("joined", strings.Join(lines, ""))
		trimmed := trimLines(lines)
		add("blank-joined-trimmed", strings.Join(trimmed, " "))
		add("joined-trimmed", strings.Join(trimmed, ""))
		add("words", strings.Join(strings.Fields(lf), " "))
	}
	if !utf8.ValidString(c) {
		// JSON encoders and terminals put U+FFFD for each byte they cannot read.
		replaced := string([]rune(c))
		add("replaced", replaced)
		texts = append(texts, replaced)
		for _, f := range edgeForms(c) {
			add(f.kind, f.text)
		}
	}
	for _, t := range texts {
		for _, f := range jsonForms(t) {
			add(f.kind, f.text)
		}
		for _, p := range percentPolicies {
			add(p.kind+"-upper", percent(t, p.keep, p.drop, p.plus, upperHex))
			add(p.kind+"-lower", percent(t, p.keep, p.drop, p.plus, lowerHex))
		}
		add("hex-lower", hexLower(t))
		add("hex-upper", hexUpper(t))
		for _, f := range shellForms(t) {
			add(f.kind, f.text)
		}
		for _, f := range markupForms(t) {
			add(f.kind, f.text)
		}
		out = append(out, base64Forms(t)...)
	}
	return out
}

// edgeForms are the forms of a value that is not UTF-8 and begins or ends within
// a character which the text beside it completes: then those bytes are not
// replaced.
func edgeForms(c string) (out []form) {
	head, tail := 0, 0
	for head < min(3, len(c)) && !utf8.RuneStart(c[head]) {
		head++
	}
	for n := 1; n <= min(3, len(c)-head); n++ {
		if last := c[len(c)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				tail = n
			}
			break
		}
	}
	for k := range 2 * (head + 1) { // the text before may need any number of them
		before, rest := c[:k/2], c[k/2:]
		middle, after := rest, ""
		if k%2 == 1 {
			middle, after = rest[:len(rest)-tail], rest[len(rest)-tail:]
		}
		if before == "" && after == "" || middle == "" {
			continue
		}
		valid := string([]rune(middle))
		out = append(out, form{kind: "edges-raw", text: before + valid + after})
		for _, f := range jsonForms(valid) {
			out = append(out, form{kind: "edges-" + f.kind, text: before + f.text + after})
		}
	}
	return out
}

func base64Forms(t string) []form {
	if t == "" {
		return nil
	}
	out := make([]form, 0, 6)
	for k, kind := range [...][2]string{{"base64-std-0", "base64-url-0"}, {"base64-std-1", "base64-url-1"}, {"base64-std-2", "base64-url-2"}} {
		std := base64Aligned(t, k)
		out = append(out, form{kind[0], std.text, std.left, std.right})
		if url := base64URL.Replace(std.text); url != std.text {
			out = append(out, form{kind[1], url, std.left, std.right})
		}
	}
	return out
}

// The two alphabets differ in two characters, which have the same values.
var base64URL = strings.NewReplacer("+", "-", "/", "_")

func jsonForms(t string) []form {
	ascii := jsonASCII(t)
	once := []form{
		{kind: "json-minimal", text: jsonMinimal(t)},
		{kind: "json-go", text: jsonGo(t)},
		{kind: "json-ascii", text: ascii},
		{kind: "json-dotnet", text: jsonDotNet(t)},
		{kind: "json-slash", text: strings.ReplaceAll(jsonMinimal(t), "/", `\/`)},
		{kind: "json-ascii-slash", text: strings.ReplaceAll(ascii, "/", `\/`)},
		{kind: "go-quoted", text: goQuoted(t)},
		{kind: "go-quoted-ascii", text: goQuotedASCII(t)},
	}
	out := slices.Clone(once)
	for _, f := range once[:6] {
		out = append(out, form{kind: f.kind + "-in-json", text: jsonMinimal(f.text)})
	}
	return out
}

func shellForms(t string) []form {
	return []form{
		{kind: "shell-single", text: strings.ReplaceAll(t, `'`, `'\''`)},
		{kind: "shell-single-double", text: strings.ReplaceAll(t, `'`, `'"'"'`)},
		{kind: "shell-ansi", text: shellANSI(t, false)},
		{kind: "shell-ansi-octal", text: shellANSI(t, true)},
		{kind: "shell-backslash", text: escapeBytes(t, " \t!\"$&'()*,;<>?[\\]^`{|}")},
		{kind: "shell-backslash-hash", text: escapeBytes(t, " \t!\"#$&'()*,;<=>?[\\]^`{|}~")},
		{kind: "shell-backslash-all", text: escapeAllBut(t, alnum+"_-.,:+/@\n")},
		{kind: "shell-double", text: escapeBytes(t, "\"$\\`")},
		{kind: "shell-double-bang", text: escapeBytes(t, "\"$\\`!")},
		{kind: "doubled-single", text: strings.ReplaceAll(t, `'`, `''`)},
		{kind: "doubled-double", text: strings.ReplaceAll(t, `"`, `""`)},
		{kind: "doubled-dollar", text: strings.ReplaceAll(t, `$`, `$$`)},
	}
}

// Built once: making a Replacer costs more than using it.
var (
	lineEnds     = strings.NewReplacer("\r\n", "\n", "\r", "\n")
	markupBase   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	markupQuotes = func() (out []*strings.Replacer) {
		for _, double := range []string{`"`, "&quot;", "&#34;"} {
			for _, single := range []string{`'`, "&apos;", "&#39;", "&#x27;"} {
				out = append(out, strings.NewReplacer(`"`, double, `'`, single))
			}
		}
		return
	}()
)

func markupForms(t string) []form {
	base := markupBase.Replace(t)
	if !strings.ContainsAny(base, `"'`) {
		return []form{{kind: "markup", text: base}}
	}
	out := make([]form, 0, len(markupQuotes))
	for _, r := range markupQuotes {
		out = append(out, form{kind: "markup", text: r.Replace(base)})
	}
	return out
}

// parts splits a structured value into what may be printed by itself: the
// string leaves of a JSON document, the values of a dotenv text, else the
// lines. Leaves get all forms, lines only their JSON ones.
func parts(c string) (leaves, lines []string) {
	if l, ok := jsonLeaves(c); ok {
		return l, nil
	}
	if l, ok := dotenvValues(c); ok {
		return l, nil
	}
	if !strings.ContainsAny(c, "\r\n") {
		return nil, nil
	}
	return nil, trimLines(strings.FieldsFunc(c, func(r rune) bool { return r == '\n' || r == '\r' }))
}

func trimLines(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

func jsonLeaves(c string) ([]string, bool) {
	if c == "" || c[0] != '{' && c[0] != '[' {
		return nil, false
	}
	dec := json.NewDecoder(strings.NewReader(c))
	dec.UseNumber()
	var doc any
	if dec.Decode(&doc) != nil || dec.More() {
		return nil, false
	}
	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, k := range sortedKeys(v) {
				walk(v[k])
			}
		}
	}
	walk(doc)
	return out, true
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// dotenvValues reads lines of [export] NAME=value. Every line must be one, or
// empty, or a comment.
func dotenvValues(c string) ([]string, bool) {
	var out []string
	for line := range strings.SplitSeq(c, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || !identifier(strings.TrimSpace(name)) {
			return nil, false
		}
		value = strings.TrimSpace(value)
		if unquoted, err := strconv.Unquote(value); err == nil && value[0] == '"' {
			out = append(out, unquoted)
		}
		out = append(out, core(value))
	}
	return out, len(out) > 0
}

func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && !isLetter(c) && (i == 0 || !isDigit(c)) {
			return false
		}
	}
	return s != ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool  { return isLetter(c) || isDigit(c) }

// armour reports a PEM boundary line, which says nothing about its key.
func armour(line string) bool {
	return strings.HasPrefix(line, "-----BEGIN ") || strings.HasPrefix(line, "-----END ")
}

// wordy reports whether s has enough letters and digits to be told apart from
// punctuation.
func wordy(s string, least int) bool {
	n := 0
	for i := range len(s) {
		if isAlnum(s[i]) || s[i] >= 0x80 {
			n++
		}
	}
	return n >= least
}

// distinct counts different bytes.
func distinct(s string) int {
	n := 0
	for i := range len(s) {
		if strings.IndexByte(s[:i], s[i]) < 0 {
			n++
		}
		if n > 2 {
			break
		}
	}
	return n
}

// expand turns one secret into needles and says what it had to leave out.
func expand(s Secret, id *name, minLen int) (needles []needle, refused []Refused) {
	refuse := func(reason string) { refused = append(refused, Refused{Name: s.Name, Reason: reason}) }
	var seen map[form]bool // made once a scan of the needles would be slow
	put := func(f form, bound bool, floor int) {
		if len(f.text) < floor {
			return
		}
		key := form{text: f.text, left: f.left, right: f.right}
		same := func(n needle) bool { return n.text == f.text && n.left == f.left && n.right == f.right }
		switch {
		case seen != nil:
			if seen[key] {
				return
			}
			seen[key] = true
		case slices.ContainsFunc(needles, same):
			return
		case len(needles) == 64:
			seen = map[form]bool{key: true}
			for _, n := range needles {
				seen[form{text: n.text, left: n.left, right: n.right}] = true
			}
		}
		needles = append(needles, needle{text: f.text, name: id, left: f.left, right: f.right, bound: bound})
	}
	every := func(c string, bound bool) {
		for _, f := range allForms(c) {
			// Inside base64 and hex text the neighbours are always letters or
			// digits, so these need no boundary, but length.
			if strings.HasPrefix(f.kind, "base64") || strings.HasPrefix(f.kind, "hex") {
				put(f, false, max(minLen, partFloor))
			} else {
				put(f, bound, shortFloor)
			}
		}
	}
	whole := func(c string, noForms bool) bool {
		v := judge(c, minLen, s.AllowShort)
		if v.reason != "" {
			refuse(v.reason)
			return false
		}
		if noForms {
			put(form{text: c}, v.bound, 1)
			return true
		}
		every(c, v.bound)
		for _, t := range interpretations(c) {
			if v := judge(t, minLen, s.AllowShort); v.reason == "" {
				every(t, v.bound)
			}
		}
		return true
	}
	c := core(string(s.Value))
	if s.Multi {
		n := 0
		for _, line := range trimLines(strings.FieldsFunc(c, func(r rune) bool { return r == '\n' || r == '\r' })) {
			if n++; n > maxParts {
				refuse("more than " + strconv.Itoa(maxParts) + " lines; add the rest separately")
				break
			}
			whole(core(line), s.NoForms)
		}
		if n == 0 {
			refuse(reasonEmpty)
		}
		return needles, refused
	}
	if !whole(c, s.NoForms) || s.NoForms {
		return needles, refused
	}
	left := maxParts
	var split func(c string, depth int)
	split = func(c string, depth int) {
		leaves, lines := parts(c)
		for _, leaf := range leaves {
			leaf = core(leaf)
			if !partWorthy(leaf) {
				continue
			}
			if left--; left < 0 {
				return
			}
			for _, t := range append(interpretations(leaf), leaf) {
				if !partWorthy(t) {
					continue
				}
				for _, f := range allForms(t) {
					put(f, false, partFloor)
				}
			}
			if depth == 0 {
				split(leaf, 1)
			}
		}
		for _, line := range lines {
			if !partWorthy(line) {
				continue
			}
			if left--; left < 0 {
				return
			}
			put(form{text: line}, false, partFloor)
			for _, f := range jsonForms(line) {
				put(f, false, partFloor)
			}
			for _, t := range interpretations(line) {
				if partWorthy(t) {
					put(form{text: t}, false, partFloor)
				}
			}
		}
	}
	split(c, 0)
	for _, t := range interpretations(c) {
		split(t, 0)
	}
	if left < 0 {
		refuse("more than " + strconv.Itoa(maxParts) + " parts; masked as a whole, the later parts not by themselves")
	}
	return needles, refused
}

// partWorthy is the floor for a line or leaf: what is short, common or mostly
// punctuation would mask ordinary text.
func partWorthy(s string) bool {
	return len(s) >= partFloor && !armour(s) && !stopWord(s) && wordy(s, 4)
}

// clean reports whether a name may stand in a marker without upsetting what is
// around it: a JSON string, a line, the marker's own brackets.
func clean(name string) bool {
	return name != "" && len(name) <= 128 && !bytes.ContainsFunc([]byte(name), func(r rune) bool {
		return r >= 0x80 || !isAlnum(byte(r)) && !strings.ContainsRune("_-.:/@", r)
	})
}
