// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>

#include "cli_text.h"
#include "einsum_work.h"

void einsum_type_text(const einsum_work *work, char *out, size_t room) {
  int used = snprintf(out, room, "%s[", berth_dtype_name(work->dtype));
  for (uint32_t i = 0; i < work->info.out_rank && used > 0 && (size_t)used < room; i++) {
    used += snprintf(out + used, room - (size_t)used, "%s%lld", i == 0 ? "" : ",", (long long)work->info.out_shape[i]);
  }
  if (used > 0 && (size_t)used < room) snprintf(out + used, room - (size_t)used, "]");
}

void einsum_take_values(einsum_work *work) {
  berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
  if (berth_tensor_get_info(work->result, &info, NULL) != BERTH_OK || info.elements > CLI_SHOWN_VALUES) return;
  bool pairs = info.dtype == BERTH_C64 || info.dtype == BERTH_C128;
  work->shown_count = (uint32_t)info.elements * (pairs ? 2 : 1);
  for (uint32_t i = 0; i < work->shown_count; i++) {
    bool single = info.dtype == BERTH_F32 || info.dtype == BERTH_C64;
    work->shown[i] = single ? (double)((const float *)info.data)[i] : ((const double *)info.data)[i];
  }
}

static const char *path_text(const einsum_work *work) {
  return work->path == NULL ? "searched order" : work->path->name;
}

void einsum_print_plan(const einsum_work *work) {
  char type[512];
  char peak[CLI_WORD], operands[CLI_WORD], largest[CLI_WORD], traffic[CLI_WORD], copied[CLI_WORD];
  const berth_einsum_plan_info *info = &work->info;
  einsum_type_text(work, type, sizeof type);
  if (work->options.json) {
    printf("{\"schema\": \"berth.einsum.plan\", \"version\": 1, \"result\": ");
    cli_json_string(stdout, type);
    printf(", \"operands\": %u, \"steps\": %u, \"multiply_adds\": %.6g, \"peak_bytes\": %llu, \"operand_bytes\": %llu, \"largest_bytes\": %llu", info->operands,
           info->steps, info->flops, (unsigned long long)info->peak_bytes, (unsigned long long)info->operand_bytes,
           (unsigned long long)info->largest_bytes);
    printf(", \"traffic_bytes\": %llu, \"copied_bytes\": %llu, \"path\": ", (unsigned long long)info->traffic_bytes,
           (unsigned long long)info->copied_bytes);
    cli_json_string(stdout, path_text(work));
    printf("}\n");
    return;
  }
  printf("%s  %u operands, %u steps by %s\n", type, info->operands, info->steps, path_text(work));
  printf("multiply-adds %.3g (10^%.2f)  peak %s (operands %s, largest intermediate %s)  traffic %s, of which permuted copies %s\n", info->flops,
         log10(fmax(info->flops, 1.0)), cli_bytes_text(info->peak_bytes, peak), cli_bytes_text(info->operand_bytes, operands),
         cli_bytes_text(info->largest_bytes, largest), cli_bytes_text(info->traffic_bytes, traffic), cli_bytes_text(info->copied_bytes, copied));
}

static int64_t span(int64_t from, int64_t to) {
  return from == BERTH_NO_TIME || to == BERTH_NO_TIME ? 0 : to - from;
}

static void print_values(const einsum_work *work) {
  bool pairs = work->dtype == BERTH_C64 || work->dtype == BERTH_C128;
  if (work->shown_count == 0 || work->options.output != NULL) return;
  printf("  =");
  for (uint32_t i = 0; i < work->shown_count; i += pairs ? 2 : 1) {
    printf(" %.17g", work->shown[i]);
    if (pairs) printf("%+.17gi", work->shown[i + 1]);
  }
}

static void print_line(const einsum_work *work) {
  char type[512];
  char time[CLI_WORD], queued[CLI_WORD], peak[2 * CLI_WORD];
  const berth_report_info *report = &work->report;
  einsum_type_text(work, type, sizeof type);
  cli_time_text(span(report->taken_at, report->released_at), time);
  cli_share_text(report->bytes_peak, report->bytes_granted, peak);
  if (work->options.instance != NULL) {
    printf("%s: %u tensors, %s, %u %s, peak %s, %s, ok", work->network.name, work->operand_count, work->device, work->lanes,
           work->lanes == 1 ? "lane" : "lanes", peak, time);
    print_values(work);
    if (work->options.verify) printf("  %s", work->verdict.how);
  } else {
    printf("%s %s  %s on %s  peak %s  queued %s", work->options.output == NULL ? "result" : work->options.output, type, time, work->device, peak,
           cli_time_text(report->queued_for, queued));
    print_values(work);
  }
  printf("\n");
}

static void print_json(const einsum_work *work, const char *report_json) {
  char type[512];
  const berth_report_info *report = &work->report;
  einsum_type_text(work, type, sizeof type);
  printf("{\"schema\": \"berth.einsum\", \"version\": 1, \"name\": ");
  cli_json_string(stdout, work->options.instance == NULL ? work->spec : work->network.name);
  printf(", \"result\": ");
  cli_json_string(stdout, type);
  printf(", \"operands\": %u, \"steps\": %u, \"device\": ", work->operand_count, work->info.steps);
  cli_json_string(stdout, work->device);
  printf(", \"lanes\": %u, \"nanoseconds\": %lld, \"queued_nanoseconds\": %lld, \"peak_bytes\": %llu, \"granted_bytes\": %llu", work->lanes,
         (long long)span(report->taken_at, report->released_at), (long long)report->queued_for, (unsigned long long)report->bytes_peak,
         (unsigned long long)report->bytes_granted);
  printf(", \"planned_bytes\": %llu, \"multiply_adds\": %.6g", (unsigned long long)work->info.peak_bytes, work->info.flops);
  if (work->shown_count > 0) {
    printf(", \"values\": [");
    for (uint32_t i = 0; i < work->shown_count; i++) {
      if (isfinite(work->shown[i])) {
        printf("%s%.17g", i == 0 ? "" : ", ", work->shown[i]);
      } else {
        printf("%snull", i == 0 ? "" : ", ");
      }
    }
    printf("]");
  }
  if (work->options.verify) {
    printf(", \"verified\": %s, \"verification\": ", work->verdict.equal ? "true" : "false");
    cli_json_string(stdout, work->verdict.how);
  }
  if (report_json != NULL) printf(", \"report\": %s", report_json);
  printf("}\n");
}

void einsum_print_result(const einsum_work *work, const char *report_json) {
  if (work->options.json) {
    print_json(work, report_json);
    return;
  }
  print_line(work);
  if (report_json != NULL) printf("%s\n", report_json);
}
