package flags

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written with a binary unit: 512MiB, 4GiB, 65536.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

var errSize = errors.New("must be a whole number of bytes with or without a unit, as in 512MiB")

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return errSize
	}
	*s = Size(n * unit)
	return nil
}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units {
		if n := int64(s); n != 0 && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
