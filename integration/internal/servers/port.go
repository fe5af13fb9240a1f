package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
)

// freeAddr returns an address of the loopback interface that nobody listens on.
//
// The port is not one that the system hands out by itself: while a server is
// down, a connection of somebody else could get such a port as its own end, and
// a client that keeps trying to reach the server could even meet itself.
func freeAddr() (string, error) {
	const lowest, usual = 15000, 32768
	first := usual
	if raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(raw), &first); err != nil {
			return "", fmt.Errorf("read the range of ports: %w", err)
		}
	}
	if first <= lowest {
		first = usual
	}
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(first-lowest))
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return addr, l.Close()
	}
}
