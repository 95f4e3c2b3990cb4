// Package doccheck holds the documentation to the code. A part of a page that stands between
//
//	<!-- from: SOURCE -->
//	<!-- end -->
//
// is what that source gives, and its test fails when it is not:
//
//	quote FILE FUNC     a function, whole, as it is tested
//	values FILE TYPE    the values of a closed type, each with its meaning
//	reasons             which reasons a dispatch receipt has, by status and code
//	flags BINARY        the settings of a binary, as it tells them
//	commands hookctl    the commands of the tool and their flags
//	capacity            the memory that the broker needs, by load
//
// go generate ./internal/doccheck writes the pages anew, and what the commands in the README print. Nothing else lives
// here.
package doccheck

//go:generate go test . -run TestWhatPagesTake -update
//go:generate go test ../../cmd/hookctl -run TestTheCommandsOfTheREADME -update
