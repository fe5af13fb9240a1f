// Package handler is what docs/testing-your-handler.md goes through: handlers of
// orders, most of them wrong, and the tests that say so.
package handler

import "context"

// Order is the message.
type Order struct {
	ID    string
	Cents int
}

// String is what the stories of a failed test call it.
func (o Order) String() string { return o.ID }

// Key is the same however often an order comes, and another one for another order.
func (o Order) Key() string { return o.ID }

// Handler handles a delivery: nil acknowledges it, after an error it comes again.
type Handler = func(ctx context.Context, o Order) error
