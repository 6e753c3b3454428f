/* device.h - devices are counted holders, so that a plan may outlive the caller's handle. */
#ifndef LAC_CORE_DEVICE_H
#define LAC_CORE_DEVICE_H
#include "lacuna.h"
lac_device *lac_device_retain(const lac_device *device);
#endif
