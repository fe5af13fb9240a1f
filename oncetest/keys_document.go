package oncetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonValue is a JSON value that remembers the order of members and how numbers
// were written.
type jsonValue struct {
	kind  byte         // '{', '[', '"', or 'l' for what has no parts: numbers, true, false, null
	text  string       // of a string, without escapes, or of a literal
	names []string     // of members
	items []*jsonValue // elements, or the values of members
}

// parseJSON reads a document that is known to be valid.
func parseJSON(doc []byte) *jsonValue {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return readJSON(d)
}

func readJSON(d *json.Decoder) *jsonValue {
	token, err := d.Token()
	if err != nil {
		panic(err) // it is valid
	}
	switch x := token.(type) {
	case json.Delim:
		v := &jsonValue{kind: byte(x)}
		for d.More() {
			if v.kind == '{' {
				v.names = append(v.names, readJSON(d).text)
			}
			v.items = append(v.items, readJSON(d))
		}
		if _, err := d.Token(); err != nil {
			panic(err)
		}
		return v
	case string:
		return &jsonValue{kind: '"', text: x}
	case nil:
		return &jsonValue{kind: 'l', text: "null"}
	default:
		return &jsonValue{kind: 'l', text: fmt.Sprint(x)}
	}
}

// jsonLeaf is a value without parts, and the JSON pointer to it.
type jsonLeaf struct {
	path  string
	value *jsonValue
}

func (v *jsonValue) leaves(path string, list []jsonLeaf) []jsonLeaf {
	if v.kind == '"' || v.kind == 'l' {
		return append(list, jsonLeaf{path: path, value: v})
	}
	for i, item := range v.items {
		list = item.leaves(path+"/"+v.step(i), list)
	}
	return list
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (v *jsonValue) step(i int) string {
	if v.kind == '[' {
		return strconv.Itoa(i)
	}
	return pointerEscapes.Replace(v.names[i])
}

// at returns the value that the pointer leads to, or nil.
func (v *jsonValue) at(path string) *jsonValue {
	if path == "" {
		return v
	}
	for i, item := range v.items {
		if rest, ok := strings.CutPrefix(path, "/"+v.step(i)); ok && (rest == "" || rest[0] == '/') {
			return item.at(rest)
		}
	}
	return nil
}

func (v *jsonValue) isNumber() bool {
	return v.kind == 'l' && strings.IndexByte("-0123456789", v.text[0]) >= 0
}

// other returns, as JSON, another value of the same type; null has none.
func (v *jsonValue) other() (string, bool) {
	switch {
	case v.kind == '"':
		return string(jsonStyle{}.writeString(nil, otherText(v.text))), true
	case v.text == "null":
		return "", false
	case v.text == "true":
		return "false", true
	case v.text == "false":
		return "true", true
	}
	at := strings.IndexAny(v.text, "0123456789")
	first := "1" // the last digit may count for nothing, where "big numbers" has something to say
	if v.text[at] == '1' {
		first = "2"
	}
	return v.text[:at] + first + v.text[at+1:], true
}

// otherText keeps the form of times and of ids.
func otherText(s string) string {
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.AddDate(0, 0, -1).Format(layout)
		}
	}
	if other := otherDigit(s); other != s {
		return other
	}
	return s + "a"
}

// otherDigit changes the last digit of the first number in s.
func otherDigit(s string) string {
	from := strings.IndexAny(s, "0123456789")
	if from < 0 {
		return s
	}
	to := from + 1
	for to < len(s) && s[to] >= '0' && s[to] <= '9' {
		to++
	}
	return s[:to-1] + string(s[to-1]^1) + s[to:]
}

// jsonStyle is a way to write a document.
type jsonStyle struct {
	order  func(members []int)   // nil: as they came
	space  string                // beside every value, name and sign
	escape func(r rune) string   // "" where the rune needs none
	values map[*jsonValue]string // written in place of these
}

// jsonStyles are the ways that make no difference, by rule.
var jsonStyles = map[string][]jsonStyle{
	"field order": {{order: slices.Reverse[[]int]}},
	"whitespace":  {{}, {space: " "}, {space: "\n\t"}, {space: "\r\n "}},
	"escapes": {
		{escape: func(r rune) string { return unicodeEscape(r, "%04x") }},
		{escape: func(r rune) string { return unicodeEscape(r, "%04X") }},
		{escape: func(r rune) string { // as some encoders do
			if r == '/' {
				return `\/`
			}
			if strings.ContainsRune("<>&'", r) || r >= utf8.RuneSelf {
				return unicodeEscape(r, "%04x")
			}
			return ""
		}},
	},
}

func unicodeEscape(r rune, digits string) string {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return unicodeEscape(high, digits) + unicodeEscape(low, digits)
	}
	return `\u` + fmt.Sprintf(digits, r)
}

// write appends the value.
func (s jsonStyle) write(dst []byte, v *jsonValue) []byte {
	dst = append(dst, s.space...)
	if other, ok := s.values[v]; ok {
		return append(append(dst, other...), s.space...)
	}
	switch v.kind {
	case '"':
		dst = s.writeString(dst, v.text)
	case 'l':
		dst = append(dst, v.text...)
	default:
		dst = s.writeItems(dst, v)
	}
	return append(dst, s.space...)
}

func (s jsonStyle) writeItems(dst []byte, v *jsonValue) []byte {
	order := make([]int, len(v.items))
	for i := range order {
		order[i] = i
	}
	if v.kind == '{' && s.order != nil {
		s.order(order)
	}
	dst = append(dst, v.kind)
	for n, i := range order {
		if n > 0 {
			dst = append(dst, ',')
		}
		if v.kind == '{' {
			dst = append(dst, s.space...)
			dst = s.writeString(dst, v.names[i])
			dst = append(append(dst, s.space...), ':')
		}
		dst = s.write(dst, v.items[i])
	}
	if len(order) == 0 {
		dst = append(dst, s.space...)
	}
	return append(dst, v.kind+2) // the closing bracket in ASCII
}

func (s jsonStyle) writeString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		escaped := ""
		if s.escape != nil {
			escaped = s.escape(r)
		}
		switch {
		case escaped != "":
			dst = append(dst, escaped...)
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, unicodeEscape(r, "%04x")...)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
