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
//
// go test ./internal/doccheck -update writes the pages anew. Nothing else lives here.
package doccheck
