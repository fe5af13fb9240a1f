package sqlstore

// codedError has SQLite's code, in the shape of one of the drivers.
type codedError int

func (codedError) Error() string { return "coded" }
func (e codedError) Code() int   { return int(e) }
