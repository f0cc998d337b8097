package onnx

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of onnx.proto, by message.
const (
	modelIR       protowire.Number = 1
	modelProducer protowire.Number = 2
	modelGraph    protowire.Number = 7
	modelOpset    protowire.Number = 8

	opsetDomain  protowire.Number = 1
	opsetVersion protowire.Number = 2

	graphNode        protowire.Number = 1
	graphName        protowire.Number = 2
	graphInitializer protowire.Number = 5
	graphInput       protowire.Number = 11
	graphOutput      protowire.Number = 12

	nodeInput     protowire.Number = 1
	nodeOutput    protowire.Number = 2
	nodeName      protowire.Number = 3
	nodeOp        protowire.Number = 4
	nodeAttribute protowire.Number = 5
	nodeDomain    protowire.Number = 7

	attrName   protowire.Number = 1
	attrFloat  protowire.Number = 2
	attrInt    protowire.Number = 3
	attrString protowire.Number = 4
	attrTensor protowire.Number = 5
	attrFloats protowire.Number = 7
	attrInts   protowire.Number = 8
	attrType   protowire.Number = 20

	valueName       protowire.Number = 1
	valueType       protowire.Number = 2
	typeTensorType  protowire.Number = 1
	tensorTypeElem  protowire.Number = 1
	tensorTypeShape protowire.Number = 2
	shapeDim        protowire.Number = 1
	dimSize         protowire.Number = 1
	dimName         protowire.Number = 2

	tensorDims     protowire.Number = 1
	tensorDataType protowire.Number = 2
	tensorName     protowire.Number = 8
	tensorRaw      protowire.Number = 9
	tensorExternal protowire.Number = 13
	tensorLocation protowire.Number = 14

	entryKey   protowire.Number = 1
	entryValue protowire.Number = 2
)

// AttributeProto.AttributeType and TensorProto.DataLocation.
const (
	typeFloat  = 1
	typeInt    = 2
	typeString = 3
	typeTensor = 4
	typeFloats = 6
	typeInts   = 7

	locationExternal = 1
)

// Keys of TensorProto.external_data.
const (
	keyLocation = "location"
	keyOffset   = "offset"
	keyLength   = "length"
)
