
registration.protopluginregistration"
InfoRequest"

PluginInfo
type (	Rtype
name (	Rname
endpoint (	Rendpoint-
supported_versions (	RsupportedVersions"W
RegistrationStatus+
plugin_registered (RpluginRegistered
error (	Rerror"
RegistrationStatusResponse2Î
RegistrationJ
GetInfo.pluginregistration.InfoRequest.pluginregistration.PluginInfor
NotifyRegistrationStatus&.pluginregistration.RegistrationStatus..pluginregistration.RegistrationStatusResponsebproto3