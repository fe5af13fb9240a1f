package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// fake is a server that answers as a test wants it to.
type fake struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	answers map[string]func(words []string) string // by the name of the command; "" hangs up
	seen    []string                               // names, in order
	conns   []net.Conn
	closed  bool
}

// What a server that is set up as it should be answers.
const (
	infoGood  = "# Memory\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n"
	forbidden = "-NOPERM this user has no permissions to run this command\r\n"
	noScript  = "-NOSCRIPT No matching script.\r\n"
)

func bulk(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

func text(s string) func([]string) string {
	return func([]string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
}

func reply(raw string) func([]string) string { return func([]string) string { return raw } }

func policy(name string) func([]string) string { return reply(bulk("maxmemory-policy", name)) }

// newFake starts a server that is set up well and has keys of this version. It
// ends with the test.
func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, listener: l, answers: map[string]func([]string) string{
		"config": policy("noeviction"), "info": text(infoGood), "evalsha": reply(bulk("schema", "1", "keys", "1")),
	}}
	f.wg.Go(f.accept)
	t.Cleanup(f.stop)
	return f
}

func (f *fake) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return // it was closed
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		closed := f.closed
		f.mu.Unlock()
		if closed {
			conn.Close()
		}
		f.wg.Go(func() { f.serve(conn) })
	}
}

func (f *fake) stop() {
	f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for _, conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	for {
		words, err := command(from)
		if err != nil {
			return // the client has left
		}
		answer := f.answer(words)
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func (f *fake) answer(words []string) string {
	name := strings.ToLower(words[0])
	f.mu.Lock()
	f.seen = append(f.seen, name)
	answer := f.answers[name]
	f.mu.Unlock()
	if answer == nil {
		return "-ERR unknown command\r\n"
	}
	return answer(words)
}

// on sets the answer to a command.
func (f *fake) on(name string, answer func([]string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[name] = answer
}

// commands returns the names of those that came since the last call.
func (f *fake) commands() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = nil
	return seen
}

// count returns how often a command came since the last call.
func (f *fake) count(name string) int {
	n := 0
	for _, s := range f.commands() {
		if s == name {
			n++
		}
	}
	return n
}

// command reads one of the client's.
func command(from *bufio.Reader) ([]string, error) {
	n, err := header(from)
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := header(from)
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(from, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

func header(from *bufio.Reader) (int, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// client returns one of f's, with no retries but those of a lost reply.
func (f *fake) client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: f.listener.Addr().String(), Protocol: 2, DisableIdentity: true,
		MaxRetries: 2, MinRetryBackoff: -1, MaxRetryBackoff: -1,
	})
	f.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return c
}

// open opens a store, which must work.
func (f *fake) open() *Store {
	f.t.Helper()
	st, err := Open(f.t.Context(), f.client(), Config{})
	if err != nil {
		f.t.Fatal(err)
	}
	return st
}
