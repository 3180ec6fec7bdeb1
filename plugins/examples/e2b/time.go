package main

import "strconv"

// unix reads an RFC 3339 time in UTC, as E2B writes it; 0 when it is none. The
// package time would make the plugin half as large again.
func unix(s string) int64 {
	if len(s) < 20 || s[len(s)-1] != 'Z' {
		return 0
	}
	var n [6]int64
	for i, at := range [6][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}} {
		v, err := strconv.ParseInt(s[at[0]:at[1]], 10, 64)
		if err != nil {
			return 0
		}
		n[i] = v
	}
	// Days since 1970, with years that begin in March.
	y, m, d := n[0], n[1], n[2]
	if m <= 2 {
		y--
		m += 12
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + d - 719469
	return ((days*24+n[3])*60+n[4])*60 + n[5]
}
