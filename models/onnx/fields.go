package onnx

// Field numbers of onnx.proto, by message.
const (
	modelIR       = 1
	modelProducer = 2
	modelGraph    = 7
	modelOpset    = 8
	modelMetadata = 14

	opsetDomain  = 1
	opsetVersion = 2

	graphNode        = 1
	graphName        = 2
	graphInitializer = 5
	graphInput       = 11
	graphOutput      = 12
	graphValueInfo   = 13

	nodeInput     = 1
	nodeOutput    = 2
	nodeName      = 3
	nodeOp        = 4
	nodeAttribute = 5
	nodeDomain    = 7

	attrName  = 1
	attrFloat = 2
	attrInt   = 3
	attrText  = 4
	attrInts  = 8
	attrType  = 20

	valueName       = 1
	valueType       = 2
	typeTensorType  = 1
	tensorTypeElem  = 1
	tensorTypeShape = 2
	shapeDim        = 1
	dimSize         = 1
	dimName         = 2

	tensorDims     = 1
	tensorDataType = 2
	tensorName     = 8
	tensorRaw      = 9
	tensorExternal = 13
	tensorLocation = 14

	entryKey   = 1
	entryValue = 2
)

// AttributeProto.AttributeType and TensorProto.DataLocation.
const (
	typeFloat = 1
	typeInt   = 2
	typeText  = 3
	typeInts  = 7

	locationExternal = 1
)

// Keys of TensorProto.external_data.
const (
	keyLocation = "location"
	keyOffset   = "offset"
	keyLength   = "length"
)
