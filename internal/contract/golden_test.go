package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeeps: new settings are no difference; what is missing, changed or in another order is one.
func TestKeeps(t *testing.T) {
	const file = "settings: {\n \"a\": 1,\n \"c\": {\"x\":1,\"y\":2}\n}\nend\n"
	for _, tt := range []struct {
		got  string
		want bool
	}{
		{file, true},
		{"settings: {\n \"a\": 1,\n \"b\": [1,2],\n \"c\": {\"x\":1,\"y\":2,\"z\":3},\n \"d\": 4\n}\nmore\nend\n", true},
		{"settings: {\n \"a\": 1,\n \"c\": {\"x\":1}\n}\nend\n", false},
		{"settings: {\n \"a\": 12,\n \"c\": {\"x\":1,\"y\":2}\n}\nend\n", false},
		{"settings: {\n \"c\": {\"x\":1,\"y\":2}\n}\n \"a\": 1,\nend\n", false},
	} {
		require.Equal(t, tt.want, keeps(parts(file), parts(tt.got)), tt.got)
	}
}
