package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// redisWire follows Redis' protocol, versions 2 and 3, without subscriptions.
// Requests may follow each other before the answers, which come in order.
type redisWire struct{}

func (redisWire) request(b []byte) (n int, answered bool, err error) {
	n, err = redisValue(b)
	return n, true, err
}

func (redisWire) reply(b []byte) (n int, last bool, err error) {
	n, err = redisValue(b)
	return n, n > 0 && b[0] != '>', err // what is pushed answers nothing
}

// redisValue returns the size of the first value, 0 while it isn't whole.
func redisValue(b []byte) (int, error) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return 0, nil
	}
	kind, n, parts := b[0], end+2, 0
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return n, nil
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default:
		return 0, fmt.Errorf("no value of Redis: %q", b[:end])
	}
	size, err := strconv.Atoi(string(b[1:end]))
	if err != nil {
		return 0, fmt.Errorf("no value of Redis: %q", b[:end])
	}
	if size < 0 { // null
		return n, nil
	}
	switch kind {
	case '$', '=', '!':
		if n += size + 2; len(b) < n {
			return 0, nil
		}
		return n, nil
	case '*', '~', '>':
		parts = size
	case '%':
		parts = 2 * size
	case '|': // and the value that these are the attributes of
		parts = 2*size + 1
	}
	for range parts {
		part, err := redisValue(b[n:])
		if part == 0 || err != nil {
			return 0, err
		}
		n += part
	}
	return n, nil
}

// redisCommand is the name of a request's command, in capitals.
func redisCommand(request []byte) string {
	lines := strings.SplitN(string(request), "\r\n", 4) // *2 $4 NAME …
	if len(lines) < 4 {
		return ""
	}
	return strings.ToUpper(lines[2])
}
