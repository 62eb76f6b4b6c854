// formats/chat_template/sequence_filters.h — jinja's filters of lists, dicts and what else can be iterated
#pragma once

#include "formats/chat_template/interpreter.h"

namespace snug::jinja {

Value batch_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value dictsort_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value first_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value groupby_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value items_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value join_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value last_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value length_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value list_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value map_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value max_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value min_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value reject_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value rejectattr_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value reverse_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value select_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value selectattr_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value slice_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value sort_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value sum_filter(Interpreter& run, const Value& value, const Arguments& arguments);
Value unique_filter(Interpreter& run, const Value& value, const Arguments& arguments);

}  // namespace snug::jinja
