package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// JSON returns an error of encoding/json without Go's types.
func JSON(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case e.Field == "":
		return fmt.Errorf("expected %s, got %s", JSONKind(e), e.Value)
	default:
		return fmt.Errorf("field %q: expected %s, got %s", e.Field, JSONKind(e), e.Value)
	}
}

// JSONKind names the expected type in plain words.
func JSONKind(e *json.UnmarshalTypeError) string {
	switch t := strings.TrimPrefix(e.Type.String(), "*"); {
	case t == "string":
		return "a string"
	case t == "bool":
		return "true or false"
	case t == "int":
		return "a whole number"
	case t == "float64":
		return "a number"
	case e.Field == "":
		return "a JSON object"
	default:
		return "another type"
	}
}
