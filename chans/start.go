package chans

// Go runs fn in a goroutine with a new channel that has a buffer of n values. It
// returns the channel to take from, and a function that waits for fn and returns
// its error, as often and by as many as want to know.
//
// The channel is closed when fn has returned, whatever its error: a reader that
// has to know whether it has seen everything asks wait. A panic of fn is a
// PanicError, and ErrGoexit says that it ended its goroutine.
//
// fn has to end when nobody takes any more; the functions of this package do when
// their context ends.
func Go[T any](n int, fn func(to chan<- T) error) (from <-chan T, wait func() error) {
	c := make(chan T, n)
	done := make(chan struct{})
	err := ErrGoexit
	go func() {
		defer close(done)
		defer close(c)
		defer rescue(&err)
		err = fn(c)
	}()
	return c, func() error {
		<-done
		return err
	}
}
