package oncepipe

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// KeyFormat is the version of what Key, ContentKey and StorageKey return. A
// release that changes any result for the same arguments has another one, since
// the keys in a store would no longer be found; a store keeps it with its data.
const KeyFormat = 1

// MaxStorageKey is the length in bytes of the longest result of StorageKey.
const MaxStorageKey = 255

// ErrNotCanonical: a value has no content key, because it has no JSON form, or
// one that readers understand differently. The error that wraps it says what is
// wrong and where. Trying again doesn't help.
var ErrNotCanonical = errors.New("oncepipe: no canonical JSON")

// Key joins parts to one key that people can read: Key("order", "42") is
// "order/42". Different lists of parts have different keys: in a part, "/" is
// written as "%2F" and "%" as "%25". All other bytes stay as they are, whether
// they are valid UTF-8 or not. Splitting at "/" and url.PathUnescape give the
// parts back.
//
// Key("") is the empty key, which stages refuse with ErrNoKey: a single id that
// is missing is no identity. Among several parts an empty one counts like any
// other, so check for a missing id there. Key() is "%".
func Key(parts ...string) string {
	switch len(parts) {
	case 0:
		return "%"
	case 1:
		return keyEscapes.Replace(parts[0])
	}
	size := len(parts) - 1
	for _, part := range parts {
		size += len(part)
	}
	var b strings.Builder
	b.Grow(size)
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(keyEscapes.Replace(part)) // allocates where there is something to escape
	}
	return b.String()
}

var keyEscapes = strings.NewReplacer("/", "%2F", "%", "%25")

// storageHash begins every stored form that is a hash. The tilde sorts behind
// the other printable ASCII characters, which keeps the randomness of hashes
// away from the part of an index where time-ordered keys are added.
const storageHash = "~sha256:"

// StorageKey is the form in which a store keeps a key: the key itself up to
// MaxStorageKey bytes, so that people can read it and a time-ordered key keeps
// its order, and "~sha256:" with its SHA-256 in hexadecimal when it is longer. A
// short key that begins with "~sha256:" is hashed too, so that no key can be
// given that is stored like another one. For this reason StorageKey isn't
// idempotent: only stores call it, once for each key.
func StorageKey(key string) string {
	if len(key) <= MaxStorageKey && !strings.HasPrefix(key, storageHash) {
		return key
	}
	return hashed(storageHash, []byte(key))
}

func hashed(prefix string, content []byte) string {
	sum := sha256.Sum256(content)
	b := make([]byte, 0, len(storageHash)+2*len(sum))
	return string(hex.AppendEncode(append(b, prefix...), sum[:]))
}

// ContentKey is a key made of the content of v, for values that carry no
// identity of their own: "c1:" and the SHA-256, in hexadecimal, of v's canonical
// JSON. A json.RawMessage or a []byte is JSON already and goes to
// ContentKeyJSON; any other value goes through json.Marshal. Two values have the
// same key when their JSON differs in white space, order of members and escapes
// only; the Go type doesn't matter.
//
// Invalid UTF-8 is refused (ErrNotCanonical), where json.Marshal replaces it by
// U+FFFD and so makes different strings equal. A MarshalJSON method may have
// done the same out of sight; therefore U+FFFD in its output is refused as well,
// and allowed everywhere else. What was lost before, such as the digits of a
// large number that was decoded as float64, is not seen here: for a payload that
// was received, ContentKeyJSON of its bytes is the better key.
func ContentKey(v any) (string, error) {
	switch raw := v.(type) {
	case json.RawMessage:
		return ContentKeyJSON(raw)
	case []byte:
		return ContentKeyJSON(raw)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	if holdsReplacement(doc) {
		w := replacedWalk{seen: make(map[visit]bool)}
		if w.find(reflect.ValueOf(v), "") {
			return "", fmt.Errorf("%w: invalid UTF-8, or U+FFFD from a MarshalJSON, in %q", ErrNotCanonical, clip(w.at))
		}
	}
	return contentKey(doc)
}

// ContentKeyJSON is ContentKey of one JSON document.
//
// The canonical form has no white space; members are sorted by the bytes of
// their names; in strings only quotes, backslashes and control characters are
// escaped, as in RFC 8785; numbers stay as they were written, so that no digit
// counts for nothing: 1, 1.0 and 1e0 are three contents. Unicode is not
// normalised. Refused with ErrNotCanonical: what isn't exactly one JSON value, a
// name that occurs twice in an object, invalid UTF-8, a \u escape of half a
// surrogate pair, and more than 1000 levels of nesting. The error names the byte
// and, as a JSON pointer, the value.
func ContentKeyJSON(doc []byte) (string, error) {
	if !json.Valid(doc) {
		err := json.Unmarshal(doc, new(json.RawMessage)) // takes twice as long, and knows why
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			err = fmt.Errorf("%w after %d bytes", s, s.Offset)
		}
		return "", fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	return contentKey(doc)
}

func contentKey(valid []byte) (string, error) {
	canonical, err := canonicalJSON(valid)
	if err != nil {
		return "", err
	}
	return hashed("c1:", canonical), nil
}

// holdsReplacement tells whether json.Marshal may have replaced a byte in doc.
// encoding/json writes the escape, its successor the character.
func holdsReplacement(doc []byte) bool {
	return bytes.Contains(doc, []byte(`\ufffd`)) || bytes.Contains(doc, []byte("\ufffd"))
}

// replacedWalk looks in a Go value for the strings that json.Marshal had to
// replace. It runs only when the output holds U+FFFD, and rather looks at a
// field too many: it has to find each one.
type replacedWalk struct {
	seen map[visit]bool // fields that json leaves out may lead in circles
	at   string         // where the walk is, and where it stopped
}

type visit struct {
	at  uintptr
	len int
	typ reflect.Type
}

func (w *replacedWalk) find(v reflect.Value, path string) bool {
	w.at = path
	switch v.Kind() {
	case reflect.Invalid: // a nil interface
		return false
	case reflect.Pointer, reflect.Map, reflect.Slice:
		this := visit{at: v.Pointer(), typ: v.Type()}
		if v.Kind() == reflect.Slice {
			this.len = v.Len()
		}
		if w.seen[this] || v.Kind() == reflect.Pointer && v.IsNil() {
			return false
		}
		w.seen[this] = true
	}
	if bad, ends := replacedByMethod(v); ends {
		return bad
	}
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return w.find(v.Elem(), path)
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			key := it.Key()
			// The key goes first: as a string it is written as it is, method or not.
			if w.find(reflect.ValueOf(key.String()), path) || w.find(key, path) ||
				w.find(it.Value(), fmt.Sprint(path, "/", key)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem() == reflect.TypeFor[byte]() {
			return false // base64 or numbers
		}
		for i := range v.Len() {
			if w.find(v.Index(i), path+"/"+strconv.Itoa(i)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && w.find(v.Field(i), path+"/"+f.Name) {
				return true
			}
		}
	}
	return false
}

// replacedByMethod judges a value that writes itself; ends is false for others.
func replacedByMethod(v reflect.Value) (bad, ends bool) {
	if !v.CanInterface() {
		return false, false // embedded and not exported: only its fields are written
	}
	if v.CanAddr() && v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
		v = v.Addr() // json.Marshal finds methods of the pointer as well
	}
	switch x := v.Interface().(type) {
	case *json.RawMessage, json.RawMessage:
		return false, true // written as it is, and canonicalJSON reads it
	case json.Marshaler:
		doc, err := json.Marshal(x)
		return err != nil || holdsReplacement(doc), true
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		return err != nil || !utf8.Valid(text), true
	}
	return false, false
}

// maxJSONDepth bounds the recursion over a document from outside.
const maxJSONDepth = 1000

// canonicalJSON returns the canonical form of a document whose syntax is known
// to be right; see ContentKeyJSON. It reads the whole document into a flat list
// of nodes before it writes, so that sorting members moves nodes and not text: a
// hostile document costs no more than its length (times the logarithm for
// sorting), however deep it is.
func canonicalJSON(valid []byte) ([]byte, error) {
	r := jsonReader{src: valid, nodes: make([]jsonNode, 0, 4+len(valid)/8)}
	if err := r.value(); err != nil {
		return nil, err
	}
	return r.write(make([]byte, 0, len(valid)), 0), nil
}

type jsonNode struct {
	kind     byte // the first byte of the value in the source, 'e' for a string with escapes
	at       int  // the offset in the source
	from, to int  // a range of list ('{', '['), of side ('e'), else of src
}

type jsonReader struct {
	src   []byte
	pos   int
	nodes []jsonNode // a member's value follows its name
	list  []int      // elements of arrays, sorted names of objects: indices of nodes
	open  []int      // the same for the containers that are being read
	side  []byte     // strings that had escapes, without them
	path  []int      // of each container that is being read: index, or ^node of the name
}

func (r *jsonReader) value() error {
	r.space()
	switch c := r.src[r.pos]; c {
	case '{', '[':
		return r.container(c)
	case '"':
		return r.text()
	}
	from := r.pos // a number, null, true or false
	for r.pos < len(r.src) && strings.IndexByte(",]} \t\n\r", r.src[r.pos]) < 0 {
		r.pos++
	}
	r.nodes = append(r.nodes, jsonNode{kind: r.src[from], at: from, from: from, to: r.pos})
	return nil
}

func (r *jsonReader) container(kind byte) error {
	if len(r.path) == maxJSONDepth {
		return r.fail(r.pos, "too many levels")
	}
	end := kind + 2 // the closing bracket in ASCII, for both kinds
	self, base, level := len(r.nodes), len(r.open), len(r.path)
	r.nodes = append(r.nodes, jsonNode{kind: kind, at: r.pos})
	r.pos++
	r.space()
	for index := 0; r.src[r.pos] != end; index++ {
		if index > 0 {
			r.pos++ // the comma
			r.space()
		}
		child, step := len(r.nodes), index
		r.open = append(r.open, child)
		if kind == '{' {
			if err := r.text(); err != nil {
				return err
			}
			r.space()
			r.pos++ // the colon
			step = ^child
		}
		r.path = append(r.path, step)
		if err := r.value(); err != nil {
			return err
		}
		r.path = r.path[:level]
		r.space()
	}
	r.pos++
	if kind == '{' {
		if err := r.sortNames(r.open[base:]); err != nil {
			return err
		}
	}
	r.nodes[self].from = len(r.list)
	r.list = append(r.list, r.open[base:]...)
	r.nodes[self].to = len(r.list)
	r.open = r.open[:base]
	return nil
}

func (r *jsonReader) sortNames(names []int) error {
	slices.SortFunc(names, func(a, b int) int { return bytes.Compare(r.textOf(a), r.textOf(b)) })
	for i := 1; i < len(names); i++ {
		if bytes.Equal(r.textOf(names[i-1]), r.textOf(names[i])) {
			r.path = append(r.path, ^names[i])
			return r.fail(r.nodes[names[i]].at, "a name occurs twice")
		}
	}
	return nil
}

// text reads a string and checks its UTF-8.
func (r *jsonReader) text() error {
	n := jsonNode{kind: '"', at: r.pos, from: r.pos + 1}
	r.pos++
	run := r.pos
	for r.src[r.pos] != '"' {
		switch c := r.src[r.pos]; {
		case c == '\\':
			if n.kind == '"' {
				n.kind, n.from = 'e', len(r.side)
			}
			r.side = append(r.side, r.src[run:r.pos]...)
			if err := r.escape(); err != nil {
				return err
			}
			run = r.pos
		case c < utf8.RuneSelf:
			r.pos++
		default:
			char, size := utf8.DecodeRune(r.src[r.pos:])
			if char == utf8.RuneError && size == 1 {
				return r.fail(r.pos, "invalid UTF-8")
			}
			r.pos += size
		}
	}
	n.to = r.pos
	if n.kind == 'e' {
		r.side = append(r.side, r.src[run:r.pos]...)
		n.to = len(r.side)
	}
	r.pos++
	r.nodes = append(r.nodes, n)
	return nil
}

// What may follow a backslash, u aside, and the characters that are meant.
const (
	shortEscapes = `"\/bfnrt`
	shortEscaped = "\"\\/\b\f\n\r\t"
)

func (r *jsonReader) escape() error {
	if i := strings.IndexByte(shortEscapes, r.src[r.pos+1]); i >= 0 {
		r.side = append(r.side, shortEscaped[i])
		r.pos += 2
		return nil
	}
	at := r.pos
	char := r.unicodeEscape()
	if utf16.IsSurrogate(char) {
		var low rune
		if bytes.HasPrefix(r.src[r.pos:], []byte(`\u`)) {
			low = r.unicodeEscape()
		}
		if char = utf16.DecodeRune(char, low); char == utf8.RuneError {
			return r.fail(at, "half a surrogate pair")
		}
	}
	r.side = utf8.AppendRune(r.side, char)
	return nil
}

func (r *jsonReader) unicodeEscape() rune {
	var unit [2]byte
	hex.Decode(unit[:], r.src[r.pos+2:r.pos+6]) // four digits, the syntax says
	r.pos += 6
	return rune(unit[0])<<8 | rune(unit[1])
}

func (r *jsonReader) space() {
	for r.pos < len(r.src) && strings.IndexByte(" \t\n\r", r.src[r.pos]) >= 0 {
		r.pos++
	}
}

func (r *jsonReader) textOf(node int) []byte {
	n := r.nodes[node]
	if n.kind == 'e' {
		return r.side[n.from:n.to]
	}
	return r.src[n.from:n.to]
}

// write appends the canonical form of a node to dst.
func (r *jsonReader) write(dst []byte, node int) []byte {
	n := r.nodes[node]
	switch n.kind {
	case '{', '[':
		dst = append(dst, n.kind)
		for i, child := range r.list[n.from:n.to] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.write(dst, child)
			if n.kind == '{' {
				dst = append(dst, ':')
				dst = r.write(dst, child+1)
			}
		}
		return append(dst, n.kind+2)
	case '"':
		return append(dst, r.src[n.from-1:n.to+1]...) // with the quotes; there is nothing to escape
	case 'e':
		return appendJSONString(dst, r.textOf(node))
	}
	return append(dst, r.textOf(node)...)
}

func appendJSONString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		switch i := strings.IndexByte(shortEscaped, c); {
		case i >= 0 && c != '/':
			dst = append(dst, '\\', shortEscapes[i])
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0')
			dst = hex.AppendEncode(dst, []byte{c})
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// fail makes the error for a fault at a byte of the source and the value there.
// It shows names of members but no values, which may be nobody's business.
func (r *jsonReader) fail(at int, what string) error {
	path := ""
	for _, step := range r.path {
		if step < 0 {
			path += "/" + pointerEscapes.Replace(clip(string(r.textOf(^step))))
		} else {
			path += "/" + strconv.Itoa(step)
		}
	}
	return fmt.Errorf("%w: %s at byte %d, in %q", ErrNotCanonical, what, at, clip(path))
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901

// clip keeps an error short, however long the names in a hostile document are.
func clip(s string) string {
	if len(s) <= 200 {
		return s
	}
	return s[:200] + "…"
}
