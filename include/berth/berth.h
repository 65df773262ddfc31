// SPDX-License-Identifier: Apache-2.0
/// All of Berth.
#ifndef BERTH_H
#define BERTH_H

#include "berth/base.h"
#include "berth/device.h"
#include "berth/runtime.h"
#include "berth/tensor.h"

#endif
