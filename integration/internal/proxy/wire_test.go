package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// pg is a message of PostgreSQL; kind 0 is one without a kind.
func pg(kind byte, body string) string {
	size := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if kind == 0 {
		return string(size) + body
	}
	return string(kind) + string(size) + body
}

func word(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// my is a packet of MySQL.
func my(number byte, body string) string {
	return string([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), number}) + body
}

// step is what one side sends next, and what the wire should make of it.
type step struct {
	from  string // client or server
	bytes string
	ends  bool // the server answers it; the answer ends with it
}

func client(ends bool, bytes string) step { return step{"client", bytes, ends} }
func server(ends bool, bytes string) step { return step{"server", bytes, ends} }

// The wires find the same borders however the network cuts the streams.
func TestWires(t *testing.T) {
	const ok, okMore = "\x00\x01\x02\x02\x00\x00\x00", "\x00\x01\x02\x0a\x00\x00\x00"
	const eof, okEnd, okEndMore = "\xfe\x00\x00\x02\x00", "\xfe\x00\x00\x02\x00\x00\x00", "\xfe\x00\x00\x0a\x00\x00\x00"
	login := func(flags uint32) []step {
		return []step{
			server(false, my(0, "\x0a10.11\x00")),
			client(false, my(1, string(binary.LittleEndian.AppendUint32(nil, flags))+"user")),
			server(false, my(2, ok)),
		}
	}
	for name, c := range map[string]struct {
		protocol Protocol
		steps    []step
	}{
		"postgres": {Postgres, []step{
			client(false, pg(0, word(postgresSSL))), server(false, "N"),
			client(true, pg(0, word(3<<16)+"user\x00me\x00\x00")),
			server(false, pg('R', word(5)+"salt")), client(false, pg('p', "secret\x00")),
			server(false, pg('R', word(0))), server(true, pg('Z', "I")),
			client(true, pg('Q', "begin\x00")), server(false, pg('C', "BEGIN\x00")), server(true, pg('Z', "T")),
			client(true, pg('P', "s\x00SELECT 1\x00")+pg('D', "Ss\x00")+pg('S', "")),
			client(false, pg('B', "")+pg('E', "")+pg('H', "")), // a flush: answered at once
			client(true, pg('S', "")),
			server(true, pg('Z', "T")), server(false, pg('E', "SERROR\x00\x00")), server(true, pg('Z', "E")),
			client(false, pg('X', "")),
		}},
		"postgres cancel": {Postgres, []step{client(false, pg(0, word(postgresCancel)+"12345678"))}},
		"mysql": {MySQL, append(login(mysqlDeprecateEOF),
			client(true, my(0, "\x03COMMIT")), server(true, my(1, ok)),
			client(true, my(0, "\x03INSERT; SELECT; INSERT")), server(false, my(1, okMore)),
			server(false, my(2, "\x01")), server(false, my(3, "column")), server(false, my(4, "\x00")), // an empty string
			server(false, my(5, okEndMore)), server(true, my(6, ok)),
			client(true, my(0, "\x03SELECT")), server(false, my(1, "\x01")), server(false, my(2, "column")),
			server(true, my(3, "\xff\x01\x02error")),
			client(true, my(0, "\x16SELECT ?")), server(false, my(1, "\x00\x01\x00\x00\x00\x01\x00\x02\x00\x00\x00\x00")),
			server(false, my(2, "param")), server(false, my(3, "param")), server(true, my(4, "column")),
			client(false, my(0, "\x18long")), client(true, my(0, "\x17\x01\x00\x00\x00")),
			server(false, my(1, "\x01\x00")), server(false, my(2, "\x00\x00row")), server(true, my(3, okEnd)),
			client(false, my(0, "\x19\x01\x00\x00\x00")),
			client(true, my(0, "\x03LOAD DATA")), server(false, my(1, "\xfbfile")),
			client(false, my(2, "data")), client(false, my(3, "")), server(true, my(4, ok)),
			client(true, my(0, "\x16DO 1")), server(true, my(1, "\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")),
			client(false, my(0, "\x01")),
		)},
		"mysql with the old end markers": {MySQL, append(login(0),
			client(true, my(0, "\x03SELECT")), server(false, my(1, "\x01")), server(false, my(2, "column")), server(false, my(3, eof)),
			server(false, my(4, "\x03row")), server(true, my(5, eof)),
			client(true, my(0, "\x16SELECT ?")), server(false, my(1, "\x00\x01\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00")),
			server(false, my(2, "param")), server(false, my(3, eof)), server(false, my(4, "column")), server(true, my(5, eof)),
			client(true, my(0, "\x0e")), server(true, my(1, ok)),
		)},
		"redis": {Redis, []step{
			client(true, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
			server(true, "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*0\r\n"),
			client(true, "*1\r\n$4\r\nPING\r\n"), client(true, "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"),
			server(true, "+PONG\r\n"), server(false, ">2\r\n+invalidate\r\n*1\r\n+k\r\n"), server(true, "$-1\r\n"),
			server(true, "|1\r\n+ttl\r\n:3\r\n*3\r\n:1\r\n#t\r\n$4\r\n\r\n\r\n\r\n"),
			server(true, "-ERR no\r\n"), server(true, "_\r\n"), server(true, "=7\r\ntxt:abc\r\n"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.protocol.wire()
			for i, s := range c.steps {
				find := w.request
				if s.from == "server" {
					find = w.reply
				}
				for have := range len(s.bytes) {
					if n, _, err := find([]byte(s.bytes[:have])); n != 0 || err != nil {
						t.Fatalf("step %d: of %q it finds %d, %v", i, s.bytes[:have], n, err)
					}
				}
				n, ends, err := find([]byte(s.bytes + "\x00")) // and the start of the next
				if n != len(s.bytes) || ends != s.ends || err != nil {
					t.Fatalf("step %d, %q: %d, %t, %v, want %d, %t", i, s.bytes, n, ends, err, len(s.bytes), s.ends)
				}
			}
		})
	}
}

// A packet of MySQL that is as long as packets get goes on in the next one.
func TestLongPacket(t *testing.T) {
	const longest = 1<<24 - 1
	b := []byte(my(0, "\x03"+strings.Repeat("x", longest-1)) + my(1, ""))
	if n, _, _ := mysqlPacket(b[:len(b)-1]); n != 0 {
		t.Errorf("%d bytes are whole, without the last packet", n)
	}
	if n, _, _ := mysqlPacket(b); n != len(b) {
		t.Errorf("%d bytes, want %d", n, len(b))
	}
}

func TestWiresRefuse(t *testing.T) {
	for _, c := range []struct {
		protocol Protocol
		from     string
		bytes    string
	}{
		{Postgres, "client", "GET / HTTP/1.1\r\n"},
		{MySQL, "client", my(1, string(binary.LittleEndian.AppendUint32(nil, mysqlSSL)))},
		{Redis, "client", "PING\r\n"},
		{Redis, "server", "*x\r\n"},
	} {
		w := c.protocol.wire()
		find := w.request
		if c.from == "server" {
			find = w.reply
		}
		if _, _, err := find([]byte(c.bytes)); err == nil {
			t.Errorf("%q is followed", c.bytes)
		}
	}
	w := Postgres.wire()
	if _, _, err := w.request([]byte(pg(0, word(postgresSSL)))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.reply([]byte("S")); err == nil {
		t.Error("an encrypted connection is followed")
	}
}

func TestCommitAndStatement(t *testing.T) {
	parsed := func(text string) string {
		return pg('P', "\x00"+text+"\x00") + pg('B', "") + pg('E', "") + pg('S', "")
	}
	for _, c := range []struct {
		protocol          Protocol
		request           string
		commit, statement bool
	}{
		{Postgres, pg('Q', "commit\x00"), true, false},
		{Postgres, pg('Q', "insert into t values (1); COMMIT ;\x00"), true, true},
		{Postgres, pg('Q', "begin isolation level serializable\x00"), false, false},
		{Postgres, pg('Q', "-- ping\x00"), false, false},
		{Postgres, pg('Q', "update commits set n = 1\x00"), false, true},
		{Postgres, parsed("insert into t values (1)"), false, true},
		{Postgres, parsed("commit"), true, false},
		{Postgres, pg('B', "") + pg('E', "") + pg('S', ""), false, true},
		{Postgres, pg('P', "s\x00insert into t values (1)\x00") + pg('S', ""), false, false},
		{MySQL, my(0, "\x03COMMIT"), true, false},
		{MySQL, my(0, "\x03START TRANSACTION"), false, false},
		{MySQL, my(0, "\x03INSERT INTO t VALUES (1)"), false, true},
		{MySQL, my(0, "\x17\x01\x00\x00\x00"), false, true},
		{MySQL, my(0, "\x16INSERT INTO t VALUES (?)"), false, false},
		{MySQL, my(0, "\x0e"), false, false},
		{Redis, "*2\r\n$7\r\nevalsha\r\n$1\r\nx\r\n", true, true},
		{Redis, "*1\r\n$4\r\nPING\r\n", false, false},
	} {
		b := []byte(c.request)
		if got := c.protocol.Commit(b); got != c.commit {
			t.Errorf("Commit(%q) = %t", c.request, got)
		}
		if got := c.protocol.Statement(b); got != c.statement {
			t.Errorf("Statement(%q) = %t", c.request, got)
		}
	}
}

// Requests that are sent without waiting for the answers each meet their own
// fault: the answers before the lost one arrive, it and the ones after don't.
func TestPipelined(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	got := make(chan []string)
	go func() { got <- answer(t, target) }()

	p, err := New(Redis, target.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Set(Fault{Match: func(b []byte) bool { return redisCommand(b) == "C2" }, When: After})
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 4 {
		if _, err := fmt.Fprintf(conn, "*1\r\n$2\r\nC%d\r\n", i); err != nil {
			t.Fatal(err)
		}
	}
	replies, _ := io.ReadAll(conn) // until the cut, of which the error is another one now and then
	if string(replies) != "+C0\r\n+C1\r\n" {
		t.Errorf("the client has got %q", replies)
	}
	if seen := <-got; !slices.Contains(seen, "C2") {
		t.Errorf("the server has seen %v, without the request whose reply is lost", seen)
	}
	if n := p.Counts(); n.After.Cut != 1 || n.Connections != 1 {
		t.Errorf("counts: %+v", n)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
}

// answer answers each command of one connection by its name, and returns them.
func answer(t *testing.T, l net.Listener) (seen []string) {
	conn, err := l.Accept()
	if err != nil {
		t.Error(err)
		return nil
	}
	defer conn.Close()
	var buf []byte
	for {
		for {
			n, err := redisValue(buf)
			if n == 0 || err != nil {
				break
			}
			seen = append(seen, redisCommand(buf[:n]))
			buf = buf[n:]
			if _, err := fmt.Fprintf(conn, "+%s\r\n", seen[len(seen)-1]); err != nil {
				return seen
			}
		}
		if buf, err = readMore(conn, buf); err != nil {
			return seen
		}
	}
}
