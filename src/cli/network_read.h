// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_NETWORK_READ_H
#define CLI_NETWORK_READ_H

#include "network.h"

/// Numbers the labels of a network whose spec and shapes are read, and computes the scales; prints what is wrong.
bool cli_network_label(cli_network *network);

#endif
