package checkpoint

import "touchline/models"

// CheckIndex parses an index.
func CheckIndex(content []byte) error {
	_, err := parseIndex(content)
	return err
}

// DescribeWith describes the checkpoint with another config.json.
func (c *Checkpoint) DescribeWith(content []byte) (models.Manifest, error) {
	g, err := parseConfig(content)
	if err != nil {
		return models.Manifest{}, err
	}
	return (&Checkpoint{dir: c.dir, config: g, files: c.files, plain: c.plain, packed: c.packed, names: c.names}).Describe()
}
