//go:build linux

package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe/integration/internal/servers/procfs"
)

// watchParents returns a channel that is closed when one of the processes that
// we were started by has ended: go run, make, the make that called make. They
// are our ancestors in our own group of processes, so that a shell can start us
// in the background and go.
func watchParents(ctx context.Context) <-chan struct{} {
	chain := parents()
	gone := make(chan struct{})
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, p := range chain {
				if !p.Alive() {
					close(gone)
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return gone
}

func parents() []procfs.Process {
	var chain []procfs.Process
	for id := os.Getppid(); id > 1; {
		group, err := syscall.Getpgid(id)
		p, gone := procfs.Find(id)
		if err != nil || gone != nil || group != syscall.Getpgrp() {
			break
		}
		chain = append(chain, p)
		id = p.Parent
	}
	return chain
}
