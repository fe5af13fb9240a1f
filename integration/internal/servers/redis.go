package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

var redis = recipe{
	pkg:      "redis-server",
	service:  "redis-server",
	programs: []string{"redis-server"},
	quit:     syscall.SIGKILL,
	serve: func(folder, port string, o Options) []string {
		fsync := "no" // written before the reply, so that a kill loses nothing, without waiting for the disk
		if o.Fsync {
			fsync = "always"
		}
		args := []string{
			"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", folder,
			"--appendonly", "yes", "--appendfsync", fsync, "--save", "",
		}
		return append(args, settings(o, func(name, value string) []string {
			return []string{"--" + name, value}
		})...)
	},
	dsn:     func(addr string) string { return "redis://" + addr + "/0" },
	ask:     askRedis,
	release: func(string) error { return nil },
}

// askRedis speaks the protocol's inline form.
func askRedis(ctx context.Context, addr string) (folder string, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	// PING is refused while the data is being loaded.
	if _, err := fmt.Fprint(conn, "PING\r\nCONFIG GET dir\r\n"); err != nil {
		return "", err
	}
	lines := bufio.NewReader(conn)
	for _, want := range []string{"+PONG", "*2", "$3", "dir", "$", "/"} {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, want) {
			return "", fmt.Errorf("redis answers %q", line)
		}
		folder = line
	}
	return folder, nil
}
