package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unicode/utf8"
)

//go:embed sample.jsonl
var sample []byte

// maxLine is the size of the largest line that is sent. The receiver takes
// somewhat more, since a delivery that is sent under another id is encoded anew.
const (
	maxLine = 1 << 20
	maxBody = 2 * maxLine
)

// event is what a delivery says.
type event struct {
	ID   string          `json:"id"`
	Kind string          `json:"event"`
	Body json.RawMessage `json:"body"`

	line int // of the input
}

func (e event) key() string { return e.ID }

// parseEvent decodes a line of the input, or the body of a request, which is one.
func parseEvent(line []byte) (event, error) {
	var e event
	if !utf8.Valid(line) { // else two ids could become one
		return e, errors.New("malformed: not UTF-8")
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("malformed: %w", err)
	}
	return e, nil
}

// delivery is a request that the sender has to get acknowledged.
type delivery struct {
	line int
	key  string // empty where the line is bad
	body []byte
}

// input is a file of deliveries.
type input struct {
	repeat   int
	lines    []line
	ids      []string // distinct, of good lines
	rejected []letter // what can't be sent
}

type line struct {
	number int
	raw    []byte
	event  event
	good   bool
}

// readInput reads the file, or the sample when name is empty. A bad line is kept,
// so that the receiver gets to see it, unless it can't be sent.
func readInput(name string, repeat int) (*input, error) {
	in := &input{repeat: repeat}
	var from io.Reader = bytes.NewReader(sample)
	if name != "" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	if err := in.read(from); err != nil {
		return nil, fmt.Errorf("input %s: %w", name, err)
	}
	if len(in.lines) == 0 && len(in.rejected) == 0 {
		return nil, fmt.Errorf("input %s: no deliveries in it", name)
	}
	return in, nil
}

func (in *input) read(from io.Reader) error {
	r := bufio.NewReaderSize(from, 64<<10)
	first := map[string]line{} // by id
	for n := 1; ; n++ {
		raw, size, err := readLine(r)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if size > maxLine {
			in.reject(n, "", fmt.Errorf("huge: %d bytes, %d are allowed", size, maxLine))
			continue
		}
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			continue
		}
		l := line{number: n, raw: raw}
		l.event, err = parseEvent(raw)
		l.good = err == nil && l.event.ID != ""
		if l.good {
			before, known := first[l.event.ID]
			if known && !bytes.Equal(before.raw, raw) {
				in.reject(n, l.event.ID, fmt.Errorf("its id is that of line %d, which says something else", before.number))
				continue
			}
			if !known {
				first[l.event.ID] = l
				in.ids = append(in.ids, l.event.ID)
			}
		}
		in.lines = append(in.lines, l)
	}
}

func (in *input) reject(number int, key string, err error) {
	in.rejected = append(in.rejected, letter{line: number, key: key, stage: "input", reason: "rejected", err: err})
}

// readLine returns a line and its size. Of one that is larger than maxLine it
// keeps only the beginning.
func readLine(r *bufio.Reader) (raw []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += len(part)
		if len(raw) <= maxLine {
			raw = append(raw, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && size > 0, err == nil:
			return raw, len(bytes.TrimRight(part, "\r\n")) + size - len(part), nil
		default:
			return nil, 0, err
		}
	}
}

// idOf is the id of the nth play of the file. When there are several, each has a
// number, so that no two ids can become one.
func (in *input) idOf(id string, n int) string {
	if in.repeat == 1 {
		return id
	}
	return fmt.Sprintf("%s#%d", id, n)
}

func (in *input) keyCount() int { return len(in.ids) * in.repeat }

// keys yields the keys that must have an effect.
func (in *input) keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := 1; n <= in.repeat; n++ {
			for _, id := range in.ids {
				if !yield(in.idOf(id, n)) {
					return
				}
			}
		}
	}
}

// deliveries yields what is to be sent. Bad lines are sent once, as they are.
func (in *input) deliveries() iter.Seq[delivery] {
	return func(yield func(delivery) bool) {
		for n := 1; n <= in.repeat; n++ {
			for _, l := range in.lines {
				d := delivery{line: l.number, body: l.raw}
				if l.good {
					e := l.event
					e.ID = in.idOf(e.ID, n)
					d.key = e.ID
					if in.repeat > 1 {
						d.body = encode(e)
					}
				} else if n > 1 {
					continue
				}
				if !yield(d) {
					return
				}
			}
		}
	}
}

// encode is the opposite of parseEvent.
func encode(e event) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it may not grow
	if err := enc.Encode(e); err != nil {
		panic(err) // it was decoded from JSON
	}
	return b.Bytes()
}
