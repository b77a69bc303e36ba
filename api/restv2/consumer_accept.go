package restv2

import (
	"net/http"

	"millrace/api"
)

// embeddedTypes are the media types that name a format of keys and values.
func embeddedTypes() []string {
	return []string{
		binaryType, jsonType, avroType, jsonSchemaType, protobufType,
	}
}

// isV2 says whether a media type is one of this API.
func isV2(mediaType string) bool {
	if mediaType == genericType {
		return true
	}
	for _, t := range embeddedTypes() {
		if t == mediaType {
			return true
		}
	}
	return false
}

// typeOf is the media type of a format.
func typeOf(format string) string {
	switch format {
	case "json":
		return jsonType
	case "avro":
		return avroType
	case "jsonschema":
		return jsonSchemaType
	case "protobuf":
		return protobufType
	}
	return binaryType
}

// readType is the media type in which records of an instance are sent. A client that does not say which format it wants
// gets that of the instance. An instance whose data have schemas is read in any format of them.
func readType(h http.Header, format string) (string, error) {
	own := typeOf(format)
	offers := []string{own, genericType}
	if isSchemaFormat(format) {
		offers = append(offers, avroType, jsonSchemaType, protobufType)
	}
	switch got := api.Negotiate(h, offers...); {
	case got == genericType:
		return own, nil
	case got != "":
		return got, nil
	case api.Negotiate(h, embeddedTypes()...) != "":
		return "", api.RefuseCompat(codeFormatMismatch, "The requested embedded data format does not match the deserializer "+
			"for this consumer instance: it was created with format %s, so ask for %s.", format, own)
	}
	return "", api.RefuseCompat(http.StatusNotAcceptable, "HTTP 406 Not Acceptable: records come as %s.", own)
}
