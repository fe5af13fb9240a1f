// Oncepipe looks into a store of the oncepipe library and lets a person decide
// what no program can: what became of an unknown effect, and which dead letters
// run again. See oncepipe -h.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
