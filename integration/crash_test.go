package integration
const crashFile = "X"
func crashChild(string) {}
