package natsembed

// testStoreBytes bounds what the streams of a test may reserve together. It is bookkeeping and not space: with the
// server's default, a topology of production size would be refused on a small disk.
const testStoreBytes = 1 << 50

// TB is the part of testing.TB used here. It stands in for it so that no program links package testing.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// StartTest runs a server for one test: on a random loopback port, with its store in the test's folder, shut down
// at the end of the test.
func StartTest(tb TB) *Server {
	tb.Helper()
	s, err := Start(testOptions(tb.TempDir()))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

func testOptions(storeDir string) Options {
	return Options{StoreDir: storeDir, MaxStoreBytes: testStoreBytes, MaxMemoryBytes: testStoreBytes}
}
